package contexts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The keys of a context. Each is the name of a flag.
const (
	Servers  = "servers"
	HTTP     = "http"
	CA       = "tls-ca"
	Cert     = "tls-cert"
	Key      = "tls-key"
	AuthFile = "auth-file"
)

// Keys are the keys of a context, in the order in which Add writes them.
var Keys = []string{Servers, HTTP, CA, Cert, Key, AuthFile}

// namesFile are the keys with the name of a file.
var namesFile = []string{CA, Cert, Key, AuthFile}

const (
	current  = "current"
	maxBytes = 1 << 20 // of a file
)

// ErrUnknown is in the errors about a context that is not in the file.
var ErrUnknown = errors.New("there is no such context")

// File is a file of contexts. The zero value has none, and cannot be changed.
type File struct {
	Path     string
	Current  string // empty: none
	Contexts []Context

	lines []string
}

// Context is the values of one name.
type Context struct {
	Name   string
	values map[string]value
	file   string
	first  int // line, from 1
}

type value struct {
	text string
	line int // from 1
}

// Get returns the value of a key, the empty text if there is none. The names of files are complete.
func (c *Context) Get(key string) string {
	text := c.values[key].text
	if text != "" && slices.Contains(namesFile, key) && !filepath.IsAbs(text) {
		return filepath.Join(filepath.Dir(c.file), text)
	}
	return text
}

// Fault returns an error about a key: "file:line: key: reason".
func (c *Context) Fault(key, reason string) error {
	line := c.first
	if v, ok := c.values[key]; ok {
		line = v.line
	}
	return fault(c.file, line, key, reason)
}

func fault(file string, line int, key, reason string) error {
	if key != "" {
		reason = key + ": " + reason
	}
	return fmt.Errorf("%s:%d: %s", file, line, reason)
}

// Load reads a file; one that does not exist has no contexts. Errors about its content are all
// faults, each as "file:line: key: reason".
func Load(path string) (*File, error) {
	f := &File{Path: path}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("contexts: %w", err)
	}
	if len(text) > maxBytes || bytes.IndexByte(text, 0) >= 0 {
		return nil, fault(path, 1, "", "this is no file of contexts")
	}
	f.lines = strings.SplitAfter(string(text), "\n")
	if f.lines[len(f.lines)-1] == "" {
		f.lines = f.lines[:len(f.lines)-1]
	}
	if faults := f.parse(); len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return f, nil
}

// parse fills in Current and Contexts from the lines.
func (f *File) parse() (faults []error) {
	currentLine := 0
	wrong := func(line int, key, format string, args ...any) {
		faults = append(faults, fault(f.Path, line, key, fmt.Sprintf(format, args...)))
	}
	var c *Context
	for i, text := range f.lines {
		line := i + 1
		text = strings.TrimSpace(text)
		if text == "" || text[0] == '#' {
			continue
		}
		if text[0] == '[' {
			name := strings.TrimSuffix(text[1:], "]")
			if err := CheckName(name); err != nil || name == text[1:] {
				wrong(line, "", "%q does not begin a context, as [prod] does", text)
			} else if _, err := f.Find(name); err == nil {
				wrong(line, "", "there are two contexts %q", name)
			}
			f.Contexts = append(f.Contexts, Context{Name: name, values: map[string]value{}, file: f.Path, first: line})
			c = &f.Contexts[len(f.Contexts)-1]
			continue
		}
		key, text, ok := strings.Cut(text, "=")
		key, text = strings.TrimSpace(key), strings.TrimSpace(text)
		switch {
		case !ok:
			wrong(line, "", "%q is neither [name] nor key = value", key)
		case text == "":
			wrong(line, key, "it has no value")
		case c == nil && key == current && currentLine == 0:
			f.Current, currentLine = text, line
		case c == nil:
			wrong(line, key, "only one %q may be in front of the first [name]", current)
		case !slices.Contains(Keys, key):
			wrong(line, key, "a context has the keys %s", strings.Join(Keys, ", "))
		case c.values[key].line > 0:
			wrong(line, key, "it is in line %d already", c.values[key].line)
		default:
			c.values[key] = value{text, line}
		}
	}
	for i := range f.Contexts {
		if c := &f.Contexts[i]; c.values[Servers].line == 0 {
			wrong(c.first, Servers, "it is missing in [%s]", c.Name)
		}
	}
	if _, err := f.Find(f.Current); f.Current != "" && err != nil {
		wrong(currentLine, current, "there is no [%s]", f.Current)
	}
	return faults
}

// CheckName returns why a text is no name of a context; nil if it is one: letters, digits, dots,
// dashes and underscores.
func CheckName(name string) error {
	strange := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
	}
	if name == "" || strings.ContainsFunc(name, strange) {
		return fmt.Errorf("%q is no name: letters, digits, dots, dashes and underscores", name)
	}
	return nil
}

// Find returns a context; its error wraps ErrUnknown.
func (f *File) Find(name string) (*Context, error) {
	for i := range f.Contexts {
		if f.Contexts[i].Name == name {
			return &f.Contexts[i], nil
		}
	}
	return nil, fmt.Errorf("%q: %w in %s", name, ErrUnknown, f.Path)
}

// Use makes a context the current one, none with an empty name, and writes the file.
func (f *File) Use(name string) error {
	if name != "" {
		if _, err := f.Find(name); err != nil {
			return err
		}
	}
	return f.write(withCurrent(f.lines, name))
}

// withCurrent returns the lines with another current context, or with none.
func withCurrent(lines []string, name string) []string {
	lines = slices.DeleteFunc(slices.Clone(lines), func(text string) bool {
		key, _, ok := strings.Cut(text, "=")
		return ok && strings.TrimSpace(key) == current // no context has that key
	})
	if name != "" {
		lines = slices.Insert(lines, 0, current+" = "+name+"\n")
	}
	return lines
}

// Add adds a context with values by key, and writes the file.
func (f *File) Add(name string, values map[string]string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if _, err := f.Find(name); err == nil {
		return fmt.Errorf("there is a context %q already in %s", name, f.Path)
	}
	lines := slices.Clone(f.lines)
	if n := len(lines); n > 0 {
		lines[n-1] = strings.TrimSuffix(lines[n-1], "\n") + "\n"
		lines = append(lines, "\n")
	}
	lines = append(lines, "["+name+"]\n")
	for _, key := range Keys {
		if text := values[key]; text != "" {
			lines = append(lines, key+" = "+text+"\n")
		}
	}
	return f.write(lines)
}

// Remove removes a context, with the lines up to the next one, and writes the file.
func (f *File) Remove(name string) error {
	c, err := f.Find(name)
	if err != nil {
		return err
	}
	end := len(f.lines)
	for i := range f.Contexts {
		if first := f.Contexts[i].first; first > c.first {
			end = min(end, first-1)
		}
	}
	lines := slices.Delete(slices.Clone(f.lines), c.first-1, end)
	if f.Current == name {
		lines = withCurrent(lines, "")
	}
	return f.write(lines)
}

// write replaces the file by one with these lines, which only its owner can read.
func (f *File) write(lines []string) error {
	err := os.MkdirAll(filepath.Dir(f.Path), 0o700)
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	temp, err := os.CreateTemp(filepath.Dir(f.Path), filepath.Base(f.Path)+".*")
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	_, err = temp.WriteString(strings.Join(lines, ""))
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), f.Path)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
		return fmt.Errorf("contexts: %w", err)
	}
	again, err := Load(f.Path)
	if err == nil {
		*f = *again
	}
	return err
}
