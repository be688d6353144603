package pages

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// checker compares commands with the existing ones.
type checker struct {
	module     string
	lockkeeper string // the binary
	jepsen     func() (string, error)

	flags map[string]map[string]bool // of a command: whether each has a value
}

func newChecker(t *testing.T, module, lockkeeper string) *checker {
	dir := t.TempDir()
	return &checker{module: module, lockkeeper: lockkeeper, flags: map[string]map[string]bool{},
		jepsen: sync.OnceValues(func() (string, error) {
			binary := filepath.Join(dir, "jepsen")
			build := exec.Command("go", "build", "-o", binary, "./cmd/jepsen")
			build.Dir = module
			if out, err := build.CombinedOutput(); err != nil {
				return "", fmt.Errorf("%w: %s", err, out)
			}
			return binary, nil
		})}
}

// check returns the fault of a command line.
func (c *checker) check(line string) error {
	w := words(strings.TrimLeft(line, "("))
	if len(w) == 0 {
		return nil
	}
	switch w[0] {
	case "lockkeeper", "./lockkeeper":
		return c.checkLockkeeper(w[1:])
	case "jepsen/compare.sh":
		return c.checkDeclared(w[1:], "jepsen/compare/*.go", nil)
	case "./test":
		return c.checkFiles(slices.DeleteFunc(w, func(s string) bool { return s == "all" })...)
	case "go":
		return c.checkGo(w[1:])
	case "umask":
		if _, rest, ok := strings.Cut(line, "; "); ok {
			return c.check(strings.TrimSuffix(rest, ")"))
		}
	}
	return nil
}

func (c *checker) checkFiles(names ...string) error {
	for _, name := range names {
		name = strings.TrimSuffix(name, "/...")
		if _, err := os.Stat(filepath.Join(c.module, name)); err != nil {
			return err
		}
	}
	return nil
}

// subcommands are the commands with a command as their first argument.
var subcommands = []string{"certs", "cluster", "log", "config", "context", "snapshot"}

func (c *checker) checkLockkeeper(args []string) error {
	if len(args) == 0 || args[0] == "help" && len(args) == 1 {
		return nil
	}
	name := args[0]
	if name == "help" {
		if args[1] == "config" {
			return nil // and a key
		}
		name, args = args[1], args[1:]
	}
	help, err := exec.Command(c.lockkeeper, "help", name).CombinedOutput()
	if name == "config" {
		help, err = exec.Command(c.lockkeeper, "config", "-h").CombinedOutput()
	}
	if err != nil {
		return fmt.Errorf("help %s: %w: %s", name, err, help)
	}
	if slices.Contains(subcommands, name) && len(args) > 1 && !strings.HasPrefix(args[1], "-") &&
		!strings.Contains(string(help), "lockkeeper "+name+" "+args[1]) {
		return fmt.Errorf("lockkeeper %s has no %s", name, args[1])
	}
	return checkFlags(args[1:], helpFlags(string(help)), name == "lock" || name == "elect")
}

var helpFlag = regexp.MustCompile(`(?m)^\t-(\S+)( \S+)?  `)

// helpFlags are the flags in a help page, and whether they have a value.
func helpFlags(help string) map[string]bool {
	flags := map[string]bool{"h": false, "help": false}
	for _, m := range helpFlag.FindAllStringSubmatch(help, -1) {
		flags[m[1]] = m[2] != ""
	}
	return flags
}

// checkFlags finds flags that do not exist, up to the first argument if another command follows it.
func checkFlags(args []string, flags map[string]bool, another bool) error {
	for i := 0; i < len(args); i++ {
		if !strings.HasPrefix(args[i], "-") || args[i] == "-" {
			if another {
				return nil
			}
			continue
		}
		if args[i] == "--" {
			return nil
		}
		name, _, assigned := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		value, ok := flags[name]
		switch {
		case !ok:
			return fmt.Errorf("there is no flag -%s", name)
		case value && !assigned:
			i++
		}
	}
	return nil
}

// goFlags are the flags of go test, and whether they have a value.
var goFlags = map[string]bool{"v": false, "race": false, "run": true, "bench": true, "benchtime": true, "fuzz": true, "fuzztime": true,
	"timeout": true, "count": true, "o": true, "m": false, "overlay": false, "trimpath": false, "require": true, "replace": true}

var goTestFunc = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w*)\(`)

func (c *checker) checkGo(args []string) error {
	if len(args) == 0 {
		return nil
	}
	switch args[0] {
	case "run":
		if len(args) < 2 {
			return fmt.Errorf("go run what?")
		}
		if err := c.checkFiles(args[1]); err != nil || args[1] != "./cmd/jepsen" {
			return err
		}
		return c.checkJepsen(args[2:])
	case "test":
		return c.checkGoTest(args[1:])
	case "build":
		for _, arg := range args[1:] {
			if strings.HasPrefix(arg, "./") {
				if err := c.checkFiles(arg); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// checkGoTest finds packages, tests and flags that do not exist.
func (c *checker) checkGoTest(args []string) error {
	for i, arg := range args {
		dir, ok := strings.CutPrefix(arg, "./")
		if !ok || strings.HasSuffix(dir, "...") {
			continue
		}
		if err := c.checkFiles(dir); err != nil {
			return err
		}
		var tests []string
		files, _ := filepath.Glob(filepath.Join(c.module, dir, "*_test.go"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for _, m := range goTestFunc.FindAllStringSubmatch(string(text), -1) {
				tests = append(tests, m[1])
			}
		}
		for j, flag := range args {
			if flag != "-run" && flag != "-bench" || j+1 == len(args) || args[j+1] == "xxx" {
				continue
			}
			named, err := regexp.Compile(args[j+1])
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(tests, named.MatchString) {
				return fmt.Errorf("%s has no test %s", arg, args[j+1])
			}
		}
		if err := c.checkDeclared(slices.Delete(slices.Clone(args), i, i+1), dir+"/*.go", goFlags); err != nil {
			return err
		}
	}
	return nil
}

var declared = regexp.MustCompile(`(\w+)\((?:&[\w.]+, )?"([\w.-]+)", `)

// checkDeclared compares flags with those that some source files declare, and others.
func (c *checker) checkDeclared(args []string, pattern string, more map[string]bool) error {
	files, err := filepath.Glob(filepath.Join(c.module, pattern))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("%s: no files (%w)", pattern, err)
	}
	flags := map[string]bool{}
	for name, value := range more {
		flags[name] = value
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			switch strings.TrimSuffix(m[1], "Var") {
			case "Bool":
				flags[m[2]] = false
			case "String", "Int", "Int64", "Uint64", "Duration", "Float64", "Func":
				flags[m[2]] = true
			}
		}
	}
	return checkFlags(args, flags, false)
}

func (c *checker) checkJepsen(args []string) error {
	if len(args) == 0 {
		return nil
	}
	binary, err := c.jepsen()
	if err != nil {
		return err
	}
	// The help is printed when all flags before it are right.
	out, err := exec.Command(binary, append(slices.Clone(args), "-h")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("jepsen %s: %w: %.300s", args[0], err, out)
	}
	return nil
}

func TestChecker(t *testing.T) {
	target, err := tools.Lockkeeper()
	if err != nil {
		t.Fatal(err)
	}
	c := newChecker(t, "../..", target.Tool().Path)
	for line, good := range map[string]bool{
		"lockkeeper ls -r /": true, "lockkeeper ls -q /": false, "lockkeeper lsx": false, "lockkeeper cluster list": true,
		"lockkeeper cluster lst": false, "lockkeeper lock -note x /l cmd -z": true, "lockkeeper lock -z /l cmd": false,
		"lockkeeper help locks": true, "lockkeeper help lokcs": false, "lockkeeper config check -json zoo.cfg": true,
		"(umask 077; lockkeeper digest -sasl bob >> f)": true, "(umask 077; lockkeeper digest -sals bob >> f)": false,
		"go test ./jepsen/pages -run Checker -v": true, "go test ./jepsen/pages -run Nobody": false, "go test ./jepsen/nowhere": false,
		"go test ./jepsen/pages -nothing": false, "go run ./cmd/none": false, "jepsen/compare.sh -rounds 1": true,
		"jepsen/compare.sh -ruonds 1": false, "./test ./wire": true, "./test ./wired": false,
		"go run ./cmd/jepsen run -members 3": true, "go run ./cmd/jepsen run -membres 3": false, "go run ./cmd/jepsen walk": false,
	} {
		if err := c.check(line); (err == nil) != good {
			t.Errorf("%s: %v", line, err)
		}
	}
}
