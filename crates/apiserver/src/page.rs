//! One page of a list, and its `continue` token.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::status::Status;
use crate::store::Object;

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) objects: Vec<Arc<Object>>,
    pub(crate) revision: u64,
    pub(crate) continue_token: String,
    pub(crate) remaining: Option<usize>,
}

/// The content of a `continue` token.
#[derive(Serialize, Deserialize)]
pub(crate) struct Token {
    v: String,
    /// Revision of the list; -1 for an inconsistent continuation at the current revision.
    pub(crate) rv: i64,
    /// Key of the last object of the previous page.
    pub(crate) start: String,
}

pub(crate) fn encode_token(revision: i64, start: &str) -> String {
    let token = Token { v: "meta.k8s.io/v1".into(), rv: revision, start: start.into() };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).expect("tokens serialize to memory"))
}

pub(crate) fn decode_token(text: &str) -> Result<Token, Status> {
    let invalid = || Status::bad_request("continue key is not valid: token is malformed");
    let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|_| invalid())?;
    let token: Token = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
    if token.v != "meta.k8s.io/v1" || token.rv == 0 {
        return Err(Status::bad_request(format!(
            "continue key is not valid: server does not recognize this encoded version {:?}",
            token.v
        )));
    }
    Ok(token)
}
