{{- define "margay.name" -}}
{{ .Values.nameOverride | default "margay" }}
{{- end -}}

{{/* The name of all objects. A node has one agent, so the release's name is not part of it. */}}
{{- define "margay.fullname" -}}
{{ .Values.fullnameOverride | default "margay" }}
{{- end -}}

{{- define "margay.selector" -}}
app.kubernetes.io/name: {{ include "margay.name" . }}
{{- end -}}

{{/* Labels and annotations of any object. It takes a list: the root, labels and annotations of this object alone. */}}
{{- define "margay.metadata" -}}
{{- $root := index . 0 -}}
{{- $own := dict
  "app.kubernetes.io/name" (include "margay.name" $root)
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "app.kubernetes.io/managed-by" $root.Release.Service
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name (replace "+" "_" $root.Chart.Version)) -}}
labels:
  {{- merge (dict) (index . 1) $own $root.Values.commonLabels | toYaml | nindent 2 }}
{{- with merge (dict) (index . 2) $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of the agents' pods. */}}
{{- define "margay.podMetadata" -}}
{{- $own := dict "app.kubernetes.io/name" (include "margay.name" .) -}}
{{- $settings := dict
  "kubectl.kubernetes.io/default-container" "agent"
  "checksum/settings" (include "margay.settings" . | sha256sum) -}}
labels:
  {{- merge $own .Values.podLabels .Values.commonLabels | toYaml | nindent 2 }}
annotations: # the checksum has a change of settings replace the agents
  {{- merge $settings .Values.podAnnotations .Values.commonAnnotations | toYaml | nindent 2 }}
{{- end -}}

{{- define "margay.image" -}}
{{- if .Values.image.digest -}}
{{ printf "%s@%s" .Values.image.repository .Values.image.digest | quote }}
{{- else -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default (printf "%s%s" .Chart.AppVersion (ternary "-iptables" "" .Values.iptables))) | quote }}
{{- end -}}
{{- end -}}

{{/* The host of an address HOST:PORT as the agent reads it: without brackets, and an IP address where it is empty or localhost. */}}
{{- define "margay.host" -}}
{{- $host := regexReplaceAll ":[0-9]+$" . "" | trimPrefix "[" | trimSuffix "]" -}}
{{- has $host (list "" "localhost") | ternary "127.0.0.1" $host -}}
{{- end -}}

{{/* The port at which Prometheus reaches the agents. It takes a list: the root, the value that needs it. */}}
{{- define "margay.scraped" -}}
{{- $address := (index . 0).Values.metrics.address -}}
{{- if or (has $address (list "" "off")) (regexMatch "^(127[.].*|::1)$" (include "margay.host" $address)) -}}
{{- fail (printf "%s needs metrics.address, at which Prometheus reaches the agents, not on loopback: 0.0.0.0:9097 for instance. Without it Prometheus finds no agent" (index . 1)) -}}
{{- end -}}
{{ regexFind "[0-9]+$" $address }}
{{- end -}}

{{/* Where the probes ask. An address that stands for all of the node's leaves the host to the kubelet. */}}
{{- define "margay.probed" -}}
{{- $address := .Values.healthAddress | default "127.0.0.1:9096" -}}
{{- $host := include "margay.host" $address -}}
{{- if not (has $host (list "0.0.0.0" "::")) }}host: {{ $host | quote }}, {{ end }}port: {{ regexFind "[0-9]+$" $address }}
{{- end -}}

{{/* The ports of the node at which the agents answer. */}}
{{- define "margay.ports" -}}
{{- range $name, $address := dict "health" (.Values.healthAddress | default "127.0.0.1:9096") "metrics" (.Values.metrics.address | default "127.0.0.1:9097") }}
{{- with regexFind "[0-9]+$" $address }}
- {name: {{ $name }}, containerPort: {{ . }}, hostPort: {{ . }}, protocol: TCP}
{{- end }}
{{- end }}
{{- end -}}

{{/* The agents' settings: what values ask for in words, then what they list. */}}
{{- define "margay.settings" -}}
{{- if and (eq .Values.dataplane "iptables") (not .Values.iptables) }}
{{- fail "dataplane: iptables needs iptables: true: the image with iptables, the capability NET_RAW and the lock of iptables" }}
{{- end }}
{{- $health := regexFind "[0-9]+$" (.Values.healthAddress | default "127.0.0.1:9096") }}
{{- $metrics := regexFind "[0-9]+$" (.Values.metrics.address | default "127.0.0.1:9097") }}
{{- if and $health (eq $health $metrics) }}
{{- fail (printf "healthAddress and metrics.address have the same port, %s: two servers of one agent need two. Their defaults are 9096 and 9097" $health) }}
{{- end }}
{{- if and (eq .Values.healthAddress "off") (eq (get .Values.settings "pprof" | toString) "true") }}
{{- fail "settings.pprof needs healthAddress, at which profiles are served" }}
{{- end }}
{{- if and .Values.besideCalico .Values.iptables (not (hasKey .Values.settings "iptables-mark-mask")) }}
{{- fail "besideCalico with iptables needs settings.iptables-mark-mask: the default mark bits of the iptables dataplane, 0xffff0000, are those of Calico's agent Felix. Name 12 or more bits that are next to each other and that nothing else uses" }}
{{- end }}
MARGAY_DATAPLANE: {{ .Values.dataplane | quote }}
MARGAY_DATASTORE: {{ ternary "etcd" "kubernetes" (ne .Values.etcd.endpoints "") }}
{{- with .Values.etcd }}
{{- if .endpoints }}
{{- if and (or .user .clientCertificate) (not .secret) }}
{{- fail "etcd.user and etcd.clientCertificate need etcd.secret, the Secret with the password or the certificate" }}
{{- end }}
MARGAY_ETCD_ENDPOINTS: {{ .endpoints | quote }}
{{- if .secret }}
MARGAY_ETCD_CA_FILE: /etc/margay/etcd/ca.crt
{{- end }}
{{- if .clientCertificate }}
MARGAY_ETCD_CERT_FILE: /etc/margay/etcd/tls.crt
MARGAY_ETCD_KEY_FILE: /etc/margay/etcd/tls.key
{{- end }}
{{- if .user }}
MARGAY_ETCD_USER: {{ .user | quote }}
MARGAY_ETCD_PASSWORD_FILE: /etc/margay/etcd/password
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.healthAddress }}
MARGAY_HEALTH_ADDRESS: {{ . | quote }}
{{- end }}
{{- with .Values.metrics.address }}
MARGAY_METRICS_ADDRESS: {{ . | quote }}
{{- end }}
{{- $settings := dict }}
{{- if .Values.besideCalico }}
{{- $settings = dict "interface-prefix" "cali" "pod-ips-from-annotations" "calico" "endpoint-status-dir" "/var/run/calico/endpoint-status" }}
{{- end }}
{{- range $name, $value := merge (deepCopy .Values.settings) $settings }}
{{- if eq (kindOf $value) "float64" }}{{ $value = int64 $value }}{{ end }}
MARGAY_{{ $name | upper | replace "-" "_" }}: {{ $value | toString | quote }}
{{- end }}
{{- end -}}

{{/* The agents' affinity: that of the values, and no node with the label margay/off. */}}
{{- define "margay.affinity" -}}
{{- $off := dict "key" "margay/off" "operator" "DoesNotExist" -}}
{{- $affinity := deepCopy (.Values.affinity | default dict) -}}
{{- $node := $affinity.nodeAffinity | default dict -}}
{{- $required := $node.requiredDuringSchedulingIgnoredDuringExecution | default dict -}}
{{- $terms := list -}}
{{- range $required.nodeSelectorTerms | default (list dict) -}}
{{- $terms = append $terms (set . "matchExpressions" (append (.matchExpressions | default list) $off)) -}}
{{- end -}}
{{- $required = set $required "nodeSelectorTerms" $terms -}}
{{- $node = set $node "requiredDuringSchedulingIgnoredDuringExecution" $required -}}
{{- set $affinity "nodeAffinity" $node | toYaml -}}
{{- end -}}
