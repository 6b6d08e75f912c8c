//! Tests of the loop over several clusters.

mod chaos;
mod clusters;
mod common;
mod crash;
mod dispatch;
mod failures;
mod figures;
mod kinds;
mod kubeconfigs;
