// Package deploy holds the files to run members with: a systemd unit, a Dockerfile, a compose file
// with Prometheus and Grafana, a StatefulSet, and in package/ the files of which internal/release
// makes packages. docs/deploy.md describes them. Its tests check the unit and the files that the
// manifests name, and run the binary as the files do: static, without root, and without a
// capability.
package deploy
