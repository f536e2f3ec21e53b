{{/*
Labels of every object beside those of the site. The selectors use the name and the component alone: those of a workload cannot change, and are
the same where it was installed with kustomize.
*/}}
{{- define "npu-vigil.labels" -}}
app.kubernetes.io/name: npu-vigil
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/*
Labels and annotations of an object. Takes a dict: top (the root), and where there are any component, labels and
annotations of this object alone.
*/}}
{{- define "npu-vigil.metadata" -}}
labels:
  {{- include "npu-vigil.labels" .top | nindent 2 }}
  {{- with .component }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
  {{- with merge (dict) (.labels | default dict) .top.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .top.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/*
Labels and annotations of an object of the vendor's that the chart replaces. It has no label of ours, and an uninstall
leaves it.
*/}}
{{- define "npu-vigil.metadataOfVendor" -}}
{{- with .Values.commonLabels }}
labels:
  {{- toYaml . | nindent 2 }}
{{- end }}
annotations:
  {{- merge (dict "helm.sh/resource-policy" "keep") .Values.commonAnnotations | toYaml | nindent 2 }}
{{- end }}

{{/*
Labels and annotations of the pods of a component. Takes a dict: top, component, port of its pages, and values, which
are those of the component.
*/}}
{{- define "npu-vigil.podMetadata" -}}
labels:
  app.kubernetes.io/name: npu-vigil
  app.kubernetes.io/component: {{ .component }}
  {{- with merge (dict) .values.podLabels .top.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  {{- $scrape := dict "prometheus.io/scrape" "true" "prometheus.io/port" (toString .port) }}
  {{- if dig "tls" "enabled" false .values }}
  {{- $_ := set $scrape "prometheus.io/scheme" "https" }}
  {{- end }}
  {{- if not (dig "privileged" true .values) }}
  {{- $_ := set $scrape "cdi.k8s.io/npu-vigil" "npu-vigil/host=all" }}
  {{- end }}
  {{- merge (dict) .values.podAnnotations .top.Values.commonAnnotations $scrape | toYaml | nindent 2 }}
{{- end }}

{{/* Where a pod runs, and what it may pull. Takes a dict: top, and values, which are those of the component. */}}
{{- define "npu-vigil.scheduling" -}}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .top.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The image of all pods, and when it is pulled. */}}
{{- define "npu-vigil.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
image: {{ printf "%s@%s" .repository .digest }}
{{- else -}}
image: {{ printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) }}
{{- end }}
{{- with .pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/*
Settings as environment variables: heartbeat.absence_seconds is VIGIL_HEARTBEAT_ABSENCE_SECONDS. Takes a dict: prefix
and settings. A list has commas between its parts. A number is written as JSON writes it: Go would write 1000000 as 1e+06.
*/}}
{{- define "npu-vigil.settings" -}}
{{- range $key, $value := .settings }}
{{- $name := printf "%s_%s" $.prefix (upper $key) }}
{{- if kindIs "map" $value }}
{{- include "npu-vigil.settings" (dict "prefix" $name "settings" $value) }}
{{- else if not (kindIs "invalid" $value) }}
- name: {{ $name }}
  {{- if kindIs "slice" $value }}
  value: {{ join "," $value | quote }}
  {{- else if kindIs "string" $value }}
  value: {{ $value | quote }}
  {{- else }}
  value: {{ toJson $value | quote }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* User and group of pods without privileges. */}}
{{- define "npu-vigil.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 9820
runAsGroup: 9820
fsGroup: 9820
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* What a container without privileges may do. */}}
{{- define "npu-vigil.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Probes of the pages of a daemon. Takes its values. */}}
{{- define "npu-vigil.probes" -}}
livenessProbe:
  {{- include "npu-vigil.httpGet" (dict "path" "/healthz" "values" .) | nindent 2 }}
  periodSeconds: 15
  timeoutSeconds: 5
readinessProbe:
  {{- include "npu-vigil.httpGet" (dict "path" "/readyz" "values" .) | nindent 2 }}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end }}

{{/* A request of a probe. Takes a dict: path, and values, which are those of the daemon. */}}
{{- define "npu-vigil.httpGet" -}}
httpGet:
  path: {{ .path }}
  port: http
  {{- if dig "tls" "enabled" false .values }}
  scheme: HTTPS
  {{- end }}
{{- end }}

{{/* Settings of TLS and users of the pages. Takes the values of a daemon. */}}
{{- define "npu-vigil.pagesEnv" -}}
{{- if .tls.enabled }}
- name: VIGIL_PAGES_CERTIFICATE_FILE
  value: /etc/npu-vigil/pages/tls.crt
- name: VIGIL_PAGES_KEY_FILE
  value: /etc/npu-vigil/pages/tls.key
{{- end }}
{{- if .users.enabled }}
- name: VIGIL_PAGES_USERS_FILE
  value: /etc/npu-vigil/users/users
{{- end }}
{{- end }}

{{/* Where the Secrets of the pages are mounted. Takes the values of a daemon. */}}
{{- define "npu-vigil.pagesMounts" -}}
{{- if .tls.enabled }}
- name: pages
  mountPath: /etc/npu-vigil/pages
  readOnly: true
{{- end }}
{{- if .users.enabled }}
- name: users
  mountPath: /etc/npu-vigil/users
  readOnly: true
{{- end }}
{{- end }}

{{/* The Secrets of the pages. Takes the values of a daemon. */}}
{{- define "npu-vigil.pagesVolumes" -}}
{{- if .tls.enabled }}
- name: pages
  secret:
    secretName: {{ .tls.secretName }}
    defaultMode: 0440
{{- end }}
{{- if .users.enabled }}
- name: users
  secret:
    secretName: {{ .users.secretName }}
    defaultMode: 0440
{{- end }}
{{- end }}

{{/* How a PodMonitor reads a daemon with TLS. Takes a dict: top, and daemon, which is the key of its values. */}}
{{- define "npu-vigil.endpoint" -}}
{{- if dig "tls" "enabled" false (get .top.Values .daemon) -}}
scheme: https
{{- with .top.Values.monitoring.podMonitors.login }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}
