//! Parses packing policies as flags.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use controllers::Packing;

/// Parses the name of a policy; --help lists all names.
pub(crate) fn parser() -> impl TypedValueParser<Value = Packing> {
    let names = PossibleValuesParser::new(Packing::ALL.map(Packing::name));
    names.try_map(|name| Packing::from_name(&name).ok_or("no such policy"))
}
