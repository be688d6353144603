package differ

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocsNameTheExplanations compares the list of explanations with the section of
// docs/compatibility.md that is about them: each has a heading of its own there, in the same order,
// and a text below it.
func TestDocsNameTheExplanations(t *testing.T) {
	text, err := os.ReadFile("../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## Differences that the differential test explains\n")
	if !ok {
		t.Fatal("docs/compatibility.md has no section about the differences that this test explains")
	}
	if end := strings.Index(section, "\n## "); end >= 0 {
		section = section[:end]
	}
	heading := regexp.MustCompile(`(?m)^### (.*)$`)
	var named []string
	found := heading.FindAllStringSubmatchIndex(section, -1)
	for i, at := range found {
		name := section[at[2]:at[3]]
		named = append(named, name)
		end := len(section)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		if body := strings.TrimSpace(section[at[1]:end]); len(body) < 40 {
			t.Errorf("%q has no reason in the docs", name)
		}
	}
	var explained []string
	for _, e := range explanations {
		explained = append(explained, e.name)
		if e.reason == "" {
			t.Errorf("%q has no reason", e.name)
		}
	}
	if !slices.Equal(named, explained) {
		t.Errorf("the docs name\n%s\nand explain_test.go has\n%s", strings.Join(named, "\n"),
			strings.Join(explained, "\n"))
	}
}
