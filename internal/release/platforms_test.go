package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A listed is a package as go list prints it.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string // of vendored packages
	Module          *struct{ Main bool }
}

// TestPlatforms checks the types of the program for the platforms of a release that no test builds
// it for: a file that one of them lacks, or a function that it does not have, is found in seconds.
// Compiling it for them takes a minute each.
func TestPlatforms(t *testing.T) {
	if testing.Short() {
		t.Skip("reads the sources of all packages; not with -short")
	}
	for _, platform := range []string{"darwin/arm64", "linux/arm64", "windows/arm64"} {
		t.Run(platform, func(t *testing.T) {
			own, faults := checkTypes(t, platform, "../..", "./cmd/lockkeeper")
			if own < 20 {
				t.Errorf("the program has %d packages of this module", own)
			}
			for _, fault := range faults {
				t.Error(fault)
			}
		})
	}
}

// TestPlatformsFindsFaults checks a program that compiles on one system only.
func TestPlatformsFindsFaults(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module example\n\ngo 1.26\n",
		"main.go":        "package main\n\nfunc main() { println(other()) }\n",
		"other_linux.go": "package main\n\nimport \"syscall\"\n\nfunc other() int { return syscall.SYS_GETTID }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, faults := checkTypes(t, "linux/arm64", dir, "."); len(faults) != 0 {
		t.Errorf("linux: %v", faults)
	}
	if _, faults := checkTypes(t, "windows/arm64", dir, "."); len(faults) != 1 || !strings.Contains(faults[0].Error(), "undefined: other") {
		t.Errorf("windows: %v", faults)
	}
}

// checkTypes checks a program in the directory of a module, with all packages that it imports; of
// those of other modules only the declarations. own is the number of the module's packages.
func checkTypes(t *testing.T, platform, dir, program string) (own int, faults []error) {
	t.Helper()
	goos, goarch, _ := strings.Cut(platform, "/")
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module", program)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0", "GOWORK=off")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	// Each package follows those that it imports.
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return own, faults
		} else if err != nil {
			t.Fatal(err)
		}
		if p.ImportPath == "unsafe" {
			continue
		}
		mine := p.Module != nil && p.Module.Main
		if mine {
			own++
		}
		fset := token.NewFileSet()
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		conf := types.Config{IgnoreFuncBodies: !mine, Sizes: types.SizesFor("gc", goarch), Error: func(err error) {
			if mine {
				faults = append(faults, err)
			}
		}, Importer: importer(func(path string) (*types.Package, error) {
			if mapped := p.ImportMap[path]; mapped != "" {
				path = mapped
			}
			return checked[path], nil
		})}
		checked[p.ImportPath], _ = conf.Check(p.ImportPath, fset, files, nil)
	}
}

// importer is a types.Importer.
type importer func(path string) (*types.Package, error)

// Import implements types.Importer.
func (f importer) Import(path string) (*types.Package, error) { return f(path) }
