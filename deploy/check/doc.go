// Package check tests the files in deploy/ with the libraries of those that read them: Helm renders
// and lints the chart, Kubernetes' own types decode each manifest, Compose loads its file, and
// BuildKit parses the Dockerfile. The containers run without an engine, in namespaces and with a
// changed root directory. It is a module of its own for the sake of these dependencies.
package check
