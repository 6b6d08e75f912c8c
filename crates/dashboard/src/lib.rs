//! dashboard.
