{{/* The name of everything: the release's, if it has the chart's name in it, else both. */}}
{{- define "lockkeeper.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The labels by which the members are found. */}}
{{- define "lockkeeper.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lockkeeper.labels" -}}
{{ include "lockkeeper.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "lockkeeper.peerSecret" -}}
{{ .Values.peerSecret.existingSecret | default (printf "%s-peer" (include "lockkeeper.name" .)) }}
{{- end }}

{{- define "lockkeeper.clientTLS" -}}
{{- if and .Values.tls.secretName .Values.tls.clients.enabled }}true{{ end }}
{{- end }}

{{- define "lockkeeper.plaintext" -}}
{{- if or (not (include "lockkeeper.clientTLS" .)) .Values.tls.clients.plaintext }}true{{ end }}
{{- end }}

{{/* The ports of a Service, and of a container. */}}
{{- define "lockkeeper.clientPorts" -}}
{{- if include "lockkeeper.plaintext" . }}
- {name: client, port: {{ .Values.service.clientPort }}}
{{- end }}
{{- if include "lockkeeper.clientTLS" . }}
- {name: client-tls, port: {{ .Values.tls.clients.port }}}
{{- end }}
{{- end }}

{{/* zoo.cfg: what the chart knows, and then the values of config, which win. */}}
{{- define "lockkeeper.zoocfg" -}}
{{- $name := include "lockkeeper.name" . }}
{{- $keys := dict "tickTime" 2000 "dataDir" "/data" "enforceQuota" true "keepQuotas" true }}
{{- if include "lockkeeper.plaintext" . }}
{{- $_ := set $keys "clientPort" .Values.service.clientPort }}
{{- end }}
{{- $_ := set $keys "admin.serverPort" .Values.service.httpPort }}
{{- $_ := set $keys "quorumListenOnAllIPs" true }}
{{- $_ := set $keys "peer.secretFile" "/etc/lockkeeper-peer/peer.secret" }}
{{- if .Values.metrics.enabled }}
{{- $_ := set $keys "metricsProvider.className" "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider" }}
{{- $_ := set $keys "metricsProvider.httpPort" .Values.metrics.port }}
{{- end }}
{{- if .Values.tls.secretName }}
{{- $_ := set $keys "tls.cert" "/etc/lockkeeper-tls/tls.crt" }}
{{- $_ := set $keys "tls.key" "/etc/lockkeeper-tls/tls.key" }}
{{- $_ := set $keys "tls.ca" "/etc/lockkeeper-tls/ca.crt" }}
{{- if .Values.tls.clients.enabled }}
{{- $_ := set $keys "secureClientPort" .Values.tls.clients.port }}
{{- $_ := set $keys "ssl.clientAuth" .Values.tls.clients.auth }}
{{- end }}
{{- if .Values.tls.members.enabled }}
{{- $_ := set $keys "sslQuorum" true }}
{{- end }}
{{- end }}
{{- if eq (int .Values.replicas) 1 }}
{{- $_ := set $keys "standaloneEnabled" false }}
{{- end }}
{{- with .Values.metrics.viewerDigest }}
{{- $_ := set $keys "admin.viewerDigest" . }}
{{- end }}
{{- range $key, $value := .Values.config }}
{{- $_ := set $keys $key (kindIs "float64" $value | ternary (printf "%.0f" (float64 $value)) $value) }}
{{- end }}
{{- if and .Values.metrics.enabled (include "lockkeeper.clientTLS" .) (not (hasKey $keys "admin.viewerDigest")) (not (hasKey $keys "admin.requireLogin")) }}
{{- fail "with TLS for clients the metrics need a login: set metrics.viewerDigest (lockkeeper digest makes it), or config.admin\\.requireLogin=false, or metrics.enabled=false" }}
{{- end }}
{{- range $key := keys $keys | sortAlpha }}
{{ $key }}={{ get $keys $key }}
{{- end }}
{{- range $i := until (int .Values.replicas) }}
server.{{ add1 $i }}={{ $name }}-{{ $i }}.{{ $name }}:{{ $.Values.service.peerPort }}:3888
{{- end }}
{{- end }}
