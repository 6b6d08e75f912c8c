//! The controllers of Jobs, Deployments, `ReplicaSets` and `StatefulSets`.
