//! What Kubernetes publishes of its built-in kinds, and what this server publishes of what it serves.
//!
//! Holds the built-in types ([`BuiltinType`], read from assets when first used) with their decoding, and the `OpenAPI`
//! v3 documents that kubectl validates with and explains from. Leaves defaults and rules of kinds to `builtin`.

mod decode;
mod document;
mod duplicates;
pub mod quantity;
mod types;

use std::fmt::Write as _;
use std::io::Read as _;

use flate2::read::GzDecoder;

pub use self::decode::DecodeError;
pub(crate) use self::decode::exact_integer;
pub use self::document::{CustomResource, ResourceInfo, SubresourceInfo, document, hash, index};
pub use self::duplicates::duplicate_fields;
pub use self::types::{BuiltinType, builtin, object_meta};
pub(crate) use self::types::{component, component_name, empty_status};

/// Appends `[index]` to a path.
pub(crate) fn push_index(path: &mut String, index: usize) {
    write!(path, "[{index}]").expect("writing to a string does not fail");
}

/// Unpacks an asset. Assets are compiled in, so a broken one is a bug of the build.
pub(crate) fn unpack(asset: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(asset).read_to_end(&mut bytes).expect("assets are written by xtask as gzip");
    bytes
}
