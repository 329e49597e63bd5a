{{- define "margay.selector" -}}
app.kubernetes.io/name: margay
{{- end -}}

{{- define "margay.labels" -}}
{{ include "margay.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (replace "+" "_" .Chart.Version) }}
{{- end -}}

{{/* The agents' settings: what values ask for in words, then what they list. */}}
{{- define "margay.settings" -}}
MARGAY_DATAPLANE: {{ .Values.dataplane | quote }}
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
