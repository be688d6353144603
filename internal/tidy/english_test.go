package tidy

import (
	"go/ast"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// habits are the words behind which a relative clause stands where the field has a noun. Each must
// stay below the budget of its corpus, in occurrences per 1,000 words.
var habits = [...]struct {
	name    string
	pattern *regexp.Regexp
}{
	{"what", regexp.MustCompile(`(?i)\bwhat\b`)},
	{"that of, those of", regexp.MustCompile(`(?i)\b(?:that|those) of\b`)},
	{"so many, how many", regexp.MustCompile(`(?i)\b(?:so|how) many\b`)},
	{"whose", regexp.MustCompile(`(?i)\bwhose\b`)},
}

// A budget bounds each of the habits, in occurrences per 1,000 words.
type budget [len(habits)]float64

// budgets has the comments of each top folder, the pages and the help. A room that is rewritten
// gets a smaller one; none may grow. The whole began with 10.5, 1.7, 1.6 and 1.3;
// etcd's raft has 0.4, 0.07, 0.2 and 0.1.
var budgets = map[string]budget{
	"*.md":     {1.5, 0.4, 0.4, 0.4},
	"bench":    {0.5, 0.5, 0.2, 0.2},
	"cmd":      {1.8, 0.8, 0.1, 0.2},
	"deploy":   {0.1, 0.1, 0.1, 0.1},
	"docs":     {0.1, 0.1, 0.1, 0.1},
	"help":     {1.8, 0.2, 0.1, 0.4},
	"internal": {4.3, 0.4, 0.4, 0.3},
	"jepsen":   {0.8, 0.2, 0.2, 0.2},
	"locknode": {1.7, 0.8, 0.1, 0.1},
	"locktest": {2.5, 0.1, 0.1, 0.1},
	"quorum":   {3.5, 0.9, 0.3, 0.7},
	"recipes":  {0.7, 0.1, 0.1, 0.1},
	"server":   {2.0, 0.6, 0.3, 0.3},
	"session":  {1.2, 0.3, 0.3, 0.3},
	"wire":     {2.5, 0.3, 0.5, 0.5},
	"zkdata":   {1.8, 0.1, 0.1, 0.1},
	"znode":    {0.8, 0.2, 0.1, 0.1},
}

// Names of budgets that are no rooms: the Markdown files; the pages of help of the commands, their
// flags and messages.
const (
	pages = "*.md"
	help  = "help"
)

// TestHabits measures the comments, the pages and the help. docs/protocol describes ZooKeeper; it
// is not ours.
func TestHabits(t *testing.T) {
	words := make(map[string]int)
	found := make(map[string]*[len(habits)]int)
	count := func(corpus, text string) {
		if found[corpus] == nil {
			found[corpus] = new([len(habits)]int)
		}
		words[corpus] += len(strings.Fields(text))
		for i, h := range habits {
			found[corpus][i] += len(h.pattern.FindAllString(text, -1))
		}
	}
	for _, p := range packages(t) {
		room, _, _ := strings.Cut(p.dir, "/")
		for _, f := range p.files {
			for _, group := range f.ast.Comments {
				count(room, group.Text())
			}
			if room != "cmd" || strings.HasSuffix(f.path, "_test.go") {
				continue
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					count(help, l.Value)
				}
				return true
			})
		}
	}
	helpPages, err := filepath.Glob(filepath.Join(root, "cmd/lockkeeper/help/*.txt"))
	if err != nil || len(helpPages) == 0 {
		t.Fatalf("no pages of help: %v", err)
	}
	for _, page := range helpPages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		count(help, string(text))
	}
	for _, page := range markdownFiles(t) {
		if strings.HasPrefix(page, "docs/protocol/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		count(pages, string(text))
	}
	for corpus, n := range found {
		limits, known := budgets[corpus]
		if !known {
			t.Errorf("%s has no budget", corpus)
		}
		for i, h := range habits {
			if rate := float64(n[i]) * 1000 / float64(words[corpus]); rate > limits[i] {
				t.Errorf("%s: %q %.2f times in 1,000 words, want at most %g (style: the field's noun, a sentence with an actor)",
					corpus, h.name, rate, limits[i])
			}
		}
	}
}

// maxSubjectColumns bounds the subject of a commit.
const maxSubjectColumns = 72

// TestCommitSubjects: the subjects of the commits since this file exists are short, and have no
// habit.
func TestCommitSubjects(t *testing.T) {
	git := func(args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			t.Skipf("this is no clone: git %s: %v", args[0], err)
		}
		return strings.TrimSpace(string(out))
	}
	begin, _, _ := strings.Cut(git("log", "--diff-filter=A", "--format=%H", "--", "internal/tidy/english_test.go"), "\n")
	if begin == "" {
		return // the file is not committed yet, or the history is cut off before it
	}
	for line := range strings.Lines(git("log", "--no-merges", "--format=%h %s", begin+"..HEAD")) {
		id, subject, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n := utf8.RuneCountInString(subject); n > maxSubjectColumns {
			t.Errorf("%s: %q has %d columns, want at most %d", id, subject, n, maxSubjectColumns)
		}
		for _, h := range habits {
			if h.pattern.MatchString(subject) {
				t.Errorf("%s: %q has %q", id, subject, h.name)
			}
		}
	}
}
