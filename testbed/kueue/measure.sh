# What the measurements share: a configuration, and figures from the metrics of kube-apiserver. Sourced by benchmark, differential and jobs.

# A configuration of Kueue for one process on loopback.
configuration() {
  cat <<'CONFIGURATION'
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {leaderElect: false}
health: {healthProbeBindAddress: "0"}
metrics: {bindAddress: "0"}
CONFIGURATION
}

# The number of writes of a resource that succeeded. Arguments: file of metrics, resource, subresource.
writes() {
  awk -v resource="resource=\"$2\"" -v sub_="subresource=\"$3\"" '
    /^apiserver_request_total/ && /verb="(APPLY|PATCH|PUT|POST|DELETE)"/ && /code="2/ && index($0, resource) && index($0, sub_) { sum += $NF }
    END { printf "%d", sum }' "$1"
}
