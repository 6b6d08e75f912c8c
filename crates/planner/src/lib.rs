//! planner.
