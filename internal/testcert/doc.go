// Package testcert issues certificates for tests: in PEM, with keys on the curve P-256. Begin with
// NewCA.
package testcert
