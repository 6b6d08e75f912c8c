//! Types of built-in kinds, and the `OpenAPI` v3 documents of this server.
//!
//! This module contains the built-in types ([`BuiltinType`], parsed from assets on first use), decoding by these
//! types, and the documents that kubectl uses for validation and `explain`. Defaulting and validation of kinds are in
//! `builtin`.

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

/// Decompresses an asset. Assets are compiled in, so a malformed asset is a bug in the build.
pub(crate) fn unpack(asset: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(asset).read_to_end(&mut bytes).expect("assets are written by xtask as gzip");
    bytes
}
