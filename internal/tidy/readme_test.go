package tidy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// figures are the rows of the table in docs/performance.md that README.md shows.
var figures = []struct{ row, text string }{
	{"write, 16 clients", "writes of 16 clients"},
	{"write, 1 client at the leader, p50", "a write of one client, median"},
	{"lock-cycle, 16 clients", "locks taken and released, 16 clients"},
	{"failover (kill -9 of the leader), gap without a write", "no write after kill -9 of the leader, for"},
	{"memory of a fresh member", "memory of a fresh member"},
	{"boot to the first create, standalone", "start to the first write"},
}

var (
	figuresPart = regexp.MustCompile(`(?s)(<!-- figures: begin -->\n).*(<!-- figures: end -->)`)
	spread      = regexp.MustCompile(` \(.*\)`)
)

// TestReadmeFigures: the figures of README.md are those of docs/performance.md. With -update it
// writes them anew.
func TestReadmeFigures(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page, readme := read("docs/performance.md"), read("README.md")
	var b strings.Builder
	b.WriteString("| | lockkeeper | ZooKeeper | etcd |\n|---|---|---|---|\n")
	for _, f := range figures {
		_, row, found := strings.Cut(page, "\n| "+f.row+" | ")
		cells := strings.Split(row, " | ")
		if !found || len(cells) < 7 {
			t.Fatalf("docs/performance.md has no row %q", f.row)
		}
		fmt.Fprintf(&b, "| %s |", f.text)
		for _, cell := range []string{cells[1], cells[2], cells[6]} {
			if cell = spread.ReplaceAllString(cell, ""); cell != "–" {
				cell += " " + cells[0]
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteByte('\n')
	}
	want := figuresPart.ReplaceAllString(readme, "${1}"+b.String()+"${2}")
	switch {
	case !figuresPart.MatchString(readme):
		t.Error("README.md has no place for the figures")
	case want == readme:
	case *update:
		if err := os.WriteFile(filepath.Join(root, "README.md"), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("README.md differs from docs/performance.md: 'go test ./internal/tidy -run TestReadmeFigures -update' "+
			"writes it anew\n%s", b.String())
	}
}
