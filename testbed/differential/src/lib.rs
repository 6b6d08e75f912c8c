//! Differential tests: sends the same requests to two Kubernetes API servers and compares the responses.
//!
//! A case is a file of requests ([`case`]). It runs against a server ([`run`]). Its responses are normalised ([`normalise`]) and
//! recorded, or compared with a recording ([`answer`]). The recordings beside the cases are of the real kube-apiserver, so the
//! comparison with the in-memory server needs no cluster. `docs/compat/apiserver.md` lists the accepted differences with their
//! reasons ([`allowed`]). Random cases are generated from a seed ([`random`]).

pub mod allowed;
pub mod answer;
pub mod case;
pub mod normalise;
pub mod outline;
pub mod random;
pub mod run;
