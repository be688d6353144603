package mutant

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// planted lists the changes: "--- FILE", and for each change "@@" and lines that begin with a blank
// (they stay), with - (they go) and with + (they come). No line numbers: the lines that stay or go
// are in the file once.
//
//go:embed planted.diff
var planted string

// recipesTest is the test that the overlay adds to package recipes.
const recipesTest = "recipes/planted_test.go"

// A change replaces some lines of a file of the product.
type change struct{ file, old, new string }

// changes are the changes of planted.diff, in its order.
func changes() (list []change) {
	file := ""
	for line := range strings.Lines(planted) {
		if name, ok := strings.CutPrefix(line, "--- "); ok {
			file = strings.TrimSpace(name)
			continue
		}
		if line == "@@\n" {
			list = append(list, change{file: file})
			continue
		}
		c := &list[len(list)-1]
		switch line[0] {
		case '-':
			c.old += line[1:]
		case '+':
			c.new += line[1:]
		default:
			line = strings.TrimPrefix(line, " ")
			c.old, c.new = c.old+line, c.new+line
		}
	}
	return list
}

var packageClause = regexp.MustCompile(`(?m)^package \w+$`)

// changed returns the texts of the files that have bugs planted in them, by name. root is the
// directory of the product. Errors: a file or a line is not there.
func changed(root string) (map[string]string, error) {
	texts := make(map[string]string)
	for _, c := range changes() {
		text, ok := texts[c.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, c.file))
			if err != nil {
				return nil, fmt.Errorf("mutant: %w", err)
			}
			text = string(b)
		}
		if n := strings.Count(text, "\n"+c.old); n != 1 {
			return nil, fmt.Errorf("mutant: planted.diff: %s has these lines %d times, not once:\n%s", c.file, n, c.old)
		}
		texts[c.file] = strings.Replace(text, "\n"+c.old, "\n"+c.new, 1)
	}
	for name, text := range texts {
		if strings.Contains(text, "mutant.") && !strings.HasPrefix(name, "jepsen/") {
			at := packageClause.FindStringIndex(text)[1]
			texts[name] = text[:at] + `; import "lockkeeper/jepsen/mutant"` + text[at:]
		}
	}
	return texts, nil
}

// Files writes the files with the bugs into dir. It returns the replacement of each file, for an
// overlay.
func Files(dir string) (map[string]string, error) {
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "lockkeeper/jepsen/mutant").Output()
	if err != nil {
		return nil, fmt.Errorf("mutant: ask go for this directory: %w", err)
	}
	here := strings.TrimSpace(string(out))
	root := filepath.Dir(filepath.Dir(here))
	texts, err := changed(root)
	if err != nil {
		return nil, err
	}
	replace := map[string]string{filepath.Join(root, recipesTest): filepath.Join(here, "testdata", "recipes_test.go")}
	for name, text := range texts {
		copied := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("mutant: %w", err)
		}
		replace[filepath.Join(root, name)] = copied
	}
	return replace, nil
}

// Overlay writes the files with the bugs into dir, and the file for go build -overlay. It returns
// the name of that file.
func Overlay(dir string) (string, error) {
	replace, err := Files(dir)
	if err != nil {
		return "", err
	}
	return WriteOverlay(dir, replace)
}

// WriteOverlay writes a file that go build -overlay wants, and returns its name.
func WriteOverlay(dir string, replace map[string]string) (string, error) {
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("mutant: overlay: %w", err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, list, 0o644); err != nil {
		return "", fmt.Errorf("mutant: overlay: %w", err)
	}
	return name, nil
}
