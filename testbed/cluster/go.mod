module muster.dev/testbed/cluster

go 1.26.0
