package tidy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxProseColumns = 100
	maxCodeColumns  = 120
	maxRowColumns   = 200
)

// TestProseIsNarrow: lines of prose in Markdown files have at most maxProseColumns columns, rows of
// tables at most maxRowColumns.
func TestProseIsNarrow(t *testing.T) {
	for _, page := range markdownFiles(t) {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range wideLines(string(text)) {
			t.Errorf("%s:%s", page, fault)
		}
	}
}

// markdownFiles are the pages of the repository, relative to root.
func markdownFiles(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.md")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("this is no clone: git ls-files: %v", err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

var (
	begin = regexp.MustCompile(`<!-- .*begin -->`)
	end   = regexp.MustCompile(`<!-- .*end -->`)
	// longSpan is a line with one span of code that cannot be broken, and little else.
	longSpan = regexp.MustCompile("^[^`|]{0,10}`[^`]{80,}`[^`]{0,10}$")
)

// wideLines are the lines of a page that are too long, each with its number and its length.
// Headings, blocks of code, what a command has written (between comments with begin and end), and
// lines of prose that match longSpan may be longer.
func wideLines(text string) (faults []string) {
	code, generated := false, false
	for i, line := range strings.Split(text, "\n") {
		switch columns := utf8.RuneCountInString(line); {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			code = !code
		case begin.MatchString(line):
			generated = true
		case end.MatchString(line):
			generated = false
		case code || generated || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "|"):
			if columns > maxRowColumns {
				faults = append(faults, fmt.Sprintf("%d: a row of %d columns: make the table a list", i+1, columns))
			}
		case columns > maxProseColumns && !longSpan.MatchString(line):
			faults = append(faults, fmt.Sprintf("%d: %d columns of prose, want at most %d", i+1, columns, maxProseColumns))
		}
	}
	return faults
}

// The test of the test: each kind of line that is too long is found, and what may be long is not.
func TestWideLines(t *testing.T) {
	long := strings.Repeat("word ", 41)
	text := strings.Join([]string{
		long, "| " + long + "|", "short", "| short |", // lines 1 and 2
		"```", long, "```", "    " + long, "<!-- table: begin -->", long, "<!-- table: end -->",
		"- `" + strings.Repeat("x", 120) + "`.", "- " + long, // the last is line 13
		"| `" + strings.Repeat("x", 210) + "` |", "`a` " + long + "`b`", long + "`" + strings.Repeat("x", 80) + "`",
	}, "\n")
	var lines []string
	for _, fault := range wideLines(text) {
		number, _, _ := strings.Cut(fault, ":")
		lines = append(lines, number)
	}
	if got := strings.Join(lines, " "); got != "1 2 13 14 15 16" {
		t.Errorf("lines %s are too long, want 1 2 13 14 15 16", got)
	}
}

// TestCommentsAreNarrow: a comment of a Go file ends at column maxProseColumns at the latest; a tab
// counts 4. Directives and blocks of code in a comment are no prose.
func TestCommentsAreNarrow(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.files {
			text, err := os.ReadFile(filepath.Join(root, f.path))
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(string(text), "\n")
			for _, group := range f.ast.Comments {
				for _, n := range wideComments(group, lines) {
					t.Errorf("%s:%d: a comment of more than %d columns", f.path, n, maxProseColumns)
				}
			}
		}
	}
}

// TestCodeIsNarrow: a line of the product has at most maxCodeColumns columns; a tab counts 4. Tests
// and the laboratory may have longer ones.
func TestCodeIsNarrow(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.files {
			if strings.HasSuffix(f.path, "_test.go") || laboratory.MatchString(f.path) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(root, f.path))
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range wideCode(string(text)) {
				t.Errorf("%s:%d: code of more than %d columns", f.path, n, maxCodeColumns)
			}
		}
	}
}

// laboratory matches the files of other modules, and of tests of deployments.
var laboratory = regexp.MustCompile(`^(jepsen|cmd/jepsen|internal/tools|deploy)/`)

// wideCode returns the numbers of the lines that are too long for code.
func wideCode(text string) (numbers []int) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    ")
		if utf8.RuneCountInString(line) > maxCodeColumns {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// The test of the test: tabs count, characters of several bytes count once.
func TestWideCode(t *testing.T) {
	fits := strings.Repeat("ä", maxCodeColumns-4)
	if numbers := wideCode("\t" + fits + "\n\t" + fits + "x\n\n" + fits + "xxxxx"); !slices.Equal(numbers, []int{2, 4}) {
		t.Errorf("lines %v are too long, want 2 and 4", numbers)
	}
}

// wideComments returns the numbers of the lines with a comment that is too long.
func wideComments(group *ast.CommentGroup, lines []string) (numbers []int) {
	from, to := fset.Position(group.Pos()).Line, fset.Position(group.End()).Line
	for n := from; n <= to; n++ {
		line := strings.ReplaceAll(lines[n-1], "\t", "    ")
		prose := !strings.HasPrefix(line, "//go:") && !strings.HasPrefix(strings.TrimLeft(line, " "), "//    ")
		if prose && utf8.RuneCountInString(line) > maxProseColumns {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// The test of the test: both kinds of comments are measured, and code is not.
func TestWideComments(t *testing.T) {
	long := strings.Repeat("x", maxProseColumns)
	text := "package p\n\n// " + long + "\n//\n//\t" + long + "\nvar a = 1 // " + long + "\n\nvar b = \"" + long + "\"\n\n// short\nvar c = 2\n"
	parsed, err := parser.ParseFile(fset, "p.go", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var numbers []int
	for _, group := range parsed.Comments {
		numbers = append(numbers, wideComments(group, strings.Split(text, "\n"))...)
	}
	if !slices.Equal(numbers, []int{3, 6}) {
		t.Errorf("lines %v are too long, want 3 and 6", numbers)
	}
}
