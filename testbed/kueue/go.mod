module muster.dev/testbed/kueue

go 1.26.0
