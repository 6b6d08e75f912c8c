{{- /* Labels of all objects. */ -}}
{{- define "muster.labels" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- /* What selects the pods. In Kueue's place, the labels app.kubernetes.io of the pods are those that Kueue's Service selects. */ -}}
{{- define "muster.selector" -}}
muster.dev/controller: muster
{{- if not (and .Values.kueue.enabled .Values.kueue.inPlace) }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- end -}}

{{- define "muster.podLabels" -}}
{{- $own := dict "muster.dev/controller" "muster" -}}
{{- $default := dict "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/name" "muster" -}}
{{- if and .Values.kueue.enabled .Values.kueue.inPlace -}}
{{- $default = merge (dict "app.kubernetes.io/name" "kueue" "control-plane" "controller-manager") $default -}}
{{- end -}}
{{ toYaml (merge (merge $own .Values.podLabels) $default) }}
{{- end -}}

{{- define "muster.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* Kueue's namespace. */ -}}
{{- define "muster.kueueNamespace" -}}
{{ .Values.kueue.namespace | default .Release.Namespace }}
{{- end -}}

{{- /* Kueue's lease in its place, so that Kueue does not act at the same time; otherwise Muster's. */ -}}
{{- define "muster.lease" -}}
{{- if and .Values.kueue.enabled .Values.kueue.inPlace -}}
c1f6bfd2.kueue.x-k8s.io
{{- else -}}
muster
{{- end -}}
{{- end -}}

{{- define "muster.leaseNamespace" -}}
{{- if and .Values.kueue.enabled .Values.kueue.inPlace -}}
{{ include "muster.kueueNamespace" . }}
{{- else -}}
kube-system
{{- end -}}
{{- end -}}

{{- /* The parts of the controller. */ -}}
{{- define "muster.parts" -}}
{{- $parts := list -}}
{{- if .Values.appWrappers.enabled -}}
{{- $parts = append $parts "appwrappers" -}}
{{- end -}}
{{- if .Values.kueue.enabled -}}
{{- $parts = concat $parts (list "core" "scheduler" "webhooks") -}}
{{- if .Values.kueue.provisioning -}}
{{- $parts = append $parts "provisioning" -}}
{{- end -}}
{{- if .Values.kueue.multikueue -}}
{{- $parts = append $parts "multikueue" -}}
{{- end -}}
{{- range .Values.kueue.jobs -}}
{{- $parts = concat $parts (list (printf "job=%s" .) (printf "webhook=%s" .)) -}}
{{- end -}}
{{- end -}}
{{ join "," $parts }}
{{- end -}}

{{- /* Kueue's configuration file, in JSON, which is YAML. Its namespace is that of the pod. */ -}}
{{- define "muster.configuration" -}}
{{- $own := dict
  "apiVersion" "config.kueue.x-k8s.io/v1beta2"
  "kind" "Configuration"
  "health" (dict "healthProbeBindAddress" ":8081")
  "webhook" (dict "port" 9443)
  "internalCertManagement" (dict "enable" true "webhookServiceName" "kueue-webhook-service" "webhookSecretName" "kueue-webhook-server-cert")
  "leaderElection" (dict "leaderElect" true
    "resourceName" (include "muster.lease" .) "resourceNamespace" (include "muster.leaseNamespace" .)
    "leaseDuration" .Values.leaderElection.leaseDuration
    "renewDeadline" .Values.leaderElection.renewDeadline
    "retryPeriod" .Values.leaderElection.retryPeriod)
-}}
{{- range $name, $value := .Values.kueue.configuration -}}
{{- if or (hasKey $own $name) (eq $name "namespace") -}}
{{- fail (printf "kueue.configuration.%s is the chart's own: remove it" $name) -}}
{{- end -}}
{{- end -}}
{{ merge $own .Values.kueue.configuration | toPrettyJson }}
{{- end -}}

{{- /* Values that contradict each other. */ -}}
{{- define "muster.check" -}}
{{- if not (or .Values.appWrappers.enabled .Values.kueue.enabled) -}}
{{- fail "nothing is managed: set appWrappers.enabled or kueue.enabled" -}}
{{- end -}}
{{- if and .Values.appWrappers.enabled .Values.appWrappers.preemption .Values.appWrappers.dynamicPriority -}}
{{- fail "appWrappers.dynamicPriority excludes appWrappers.preemption: set one of them" -}}
{{- end -}}
{{- if and .Values.certificates.issuerRef (ne .Values.certificates.issuer "cert-manager") -}}
{{- fail "certificates.issuerRef needs certificates.issuer: cert-manager" -}}
{{- end -}}
{{- if and .Values.kueue.inPlace (not .Values.kueue.enabled) -}}
{{- fail "kueue.inPlace needs kueue.enabled" -}}
{{- end -}}
{{- if and .Values.kueue.enabled (ne (include "muster.kueueNamespace" .) .Release.Namespace) -}}
{{- fail (printf "kueue.namespace is %s, but the Service of the webhooks there reaches pods of its namespace only: install the chart into that namespace" .Values.kueue.namespace) -}}
{{- end -}}
{{- if and .Values.appWrappers.enabled (eq .Values.appWrappers.authorization "none") -}}
{{- range $group, $resources := .Values.appWrappers.wraps -}}
{{- if or (eq $group "rbac.authorization.k8s.io") (and (eq $group "") (has "secrets" $resources)) -}}
{{- fail (printf "appWrappers.wraps has %s of group %q: who may create AppWrappers could create them. Set appWrappers.authorization to webhook, or remove them" (join ", " $resources) $group) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.kueue.enabled .Values.appWrappers.enabled (has "workload.codeflare.dev/appwrapper" .Values.kueue.jobs) (has "workload.codeflare.dev" .Values.appWrappers.groups) -}}
{{- fail "kueue.jobs has workload.codeflare.dev/appwrapper, whose AppWrappers have an operator of their own: remove it, or remove workload.codeflare.dev from appWrappers.groups" -}}
{{- end -}}
{{- if and (or .Values.metrics.serviceMonitor.enabled .Values.metrics.rules.enabled .Values.metrics.dashboard.enabled) (not .Values.metrics.enabled) -}}
{{- fail "metrics.serviceMonitor, metrics.rules and metrics.dashboard need metrics.enabled" -}}
{{- end -}}
{{- end -}}

{{- /* Whom a binding binds. */ -}}
{{- define "muster.account" -}}
subjects:
- kind: ServiceAccount
  name: muster
  namespace: {{ .Release.Namespace }}
{{- end -}}
