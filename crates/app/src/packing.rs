//! Packing policies as flags.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use controllers::Packing;

/// Takes a policy by its name, and names them all in the help.
pub(crate) fn parser() -> impl TypedValueParser<Value = Packing> {
    let names = PossibleValuesParser::new(Packing::ALL.map(Packing::name));
    names.try_map(|name| Packing::named(&name).ok_or("no such policy"))
}
