// Package report makes what people read after a run: one HTML page without outside resources, the
// same as JSON, the history and the logs. It never decides what is right: the checkers do. The page
// works without its script and stays small however long the history is, because it is made of
// aggregates; the same Run gives the same bytes. Begin with Run and Write, then page.go and
// page.html; timeline.go, series.go and charts.go make the pictures.
package report
