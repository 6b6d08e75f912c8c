//! The same requests to two Kubernetes API servers, and what their answers differ in.
//!
//! A case is a file of requests ([`case`]). It is run against a server ([`run`]), its answers are made comparable
//! ([`normalise`]), and are kept as a recording or compared with one ([`answer`]). The recordings beside the cases are
//! the real kube-apiserver's, so the comparison with the in-memory server needs no cluster. What may differ stands in
//! `docs/compat/apiserver.md` with its reason ([`allowed`]). Cases of any length come from a seed ([`random`]).

pub mod allowed;
pub mod answer;
pub mod case;
pub mod normalise;
pub mod outline;
pub mod random;
pub mod run;
