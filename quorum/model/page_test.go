package model

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestPage compares the table of docs/model.md with the mutations; -update writes it.
func TestPage(t *testing.T) {
	const file, begin, end = root + "/docs/model.md", "<!-- rules begin -->\n", "<!-- rules end -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	table, after, more := strings.Cut(rest, end)
	if !ok || !more {
		t.Fatalf("%s has no table of rules", file)
	}
	want := ruleRows()
	if table == want {
		return
	}
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s has another table of rules; go test ./quorum/model -update writes it", file)
}

// ruleRows is the table of rules, by their first mutation.
func ruleRows() string {
	var b strings.Builder
	b.WriteString("| without | the protocol is | argument | steps | broken |\n|---|---|---|---|---|\n")
	for _, u := range mutations {
		var names []string
		first := NumRules
		for r := range NumRules {
			if u.rules.has(r) {
				names = append(names, "`"+r.String()+"`")
				first = min(first, r)
			}
		}
		steps, broken := fmt.Sprintf("[%d](../quorum/model/testdata/%s.txt)", u.steps, u.name), u.broken.Name()
		if u.broken == Kept {
			steps, broken = "", "nothing"
		}
		taken := first.Info().Taken
		if b.Len() > 0 && strings.Contains(b.String(), taken) {
			taken = "the same"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", strings.Join(names, ", "), taken, first.Info().Page, steps, broken)
	}
	return b.String()
}
