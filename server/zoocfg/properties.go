package zoocfg

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf16"
)

// property is one key with its value, and its place.
type property struct {
	file string
	line int // of the key, from 1
	key  string
	val  string
}

// readProperties reads a file in the syntax of java.util.Properties, which is what zoo.cfg is
// written in:
//
//	# comment            ! comment
//	key=value            key: value            key value
//	key=first \          a backslash at the end continues the line, without the next one's indent
//	    second
//	\t \n \r \f \uXXXX   and a backslash before any other character stands for that character
//
// Like ZooKeeper it removes blanks around keys and values, also those at the end, which Java keeps.
// Unlike Java it takes bytes beyond ASCII for UTF-8, so that a path is what its owner wrote. Faults
// are the lines that cannot be read; the others are returned all the same.
func readProperties(file string) ([]property, Faults, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		var pathErr *os.PathError
		if errors.As(err, &pathErr) {
			err = pathErr.Err // the message names the file already
		}
		return nil, nil, fmt.Errorf("server: read configuration %s: %w", file, err)
	}
	props, faults := parseProperties(file, string(text))
	return props, faults, nil
}

func parseProperties(file, text string) (props []property, faults Faults) {
	text = strings.TrimPrefix(text, "\ufeff") // some editors put a byte order mark in front
	lines := splitLines(text)
	for i := 0; i < len(lines); i++ {
		line := strings.TrimLeft(lines[i], blanks)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		first := i + 1
		for continues(line) && i+1 < len(lines) {
			i++
			line = line[:len(line)-1] + strings.TrimLeft(lines[i], blanks)
		}
		if continues(line) {
			line = line[:len(line)-1] // nothing follows
		}
		rawKey, rawVal := splitProperty(line)
		key, err := unescape(rawKey)
		if err != nil {
			faults = append(faults, Fault{File: file, Line: first, Key: rawKey, Reason: err.Error()})
			continue
		}
		val, err := unescape(rawVal)
		if err != nil {
			faults = append(faults, Fault{File: file, Line: first, Key: key, Reason: err.Error()})
			continue
		}
		props = append(props, property{file, first, trim(key), trim(val)})
	}
	return props, faults
}

// Redact returns the text of a configuration file with the values of secret keys replaced, and its
// settings by the names of ZooKeeper's system properties (zookeeper.<key>), without those that are
// secret or no such properties.
func Redact(text string) (redacted string, properties map[string]string) {
	properties = map[string]string{}
	var b strings.Builder
	lines := splitLines(text)
	for i := 0; i < len(lines); i++ {
		first := i
		for line := strings.TrimLeft(lines[i], blanks); line != "" && line[0] != '#' && line[0] != '!' &&
			continues(lines[i]) && i+1 < len(lines); {
			i++
		}
		logical := strings.Join(lines[first:i+1], "\n")
		if comment := strings.TrimLeft(logical, blanks+"#!"); comment != logical {
			if props, _ := parseProperties("", comment); len(props) > 0 && isSecret(props[0].key) {
				logical = "#" + props[0].key + "=*****"
			}
		}
		props, faults := parseProperties("", logical)
		switch {
		case len(faults) > 0:
			logical = "# a line that cannot be read"
		case len(props) > 0 && isSecret(props[0].key):
			logical = props[0].key + "=*****"
		case len(props) > 0:
			if def, name := lookupKey(props[0].key); def != nil && def.property {
				properties["zookeeper."+name] = props[0].val
			}
		}
		b.WriteString(logical)
		if i+1 < len(lines) {
			b.WriteByte('\n')
		}
	}
	return b.String(), properties
}

// isSecret reports whether the value of a key is secret, or what a secret could be guessed from.
func isSecret(key string) bool {
	key = strings.ToLower(key)
	return strings.HasSuffix(key, "password") || strings.HasSuffix(key, "digest")
}

// trim is Java's String.trim.
func trim(s string) string { return strings.TrimFunc(s, func(r rune) bool { return r <= ' ' }) }

const blanks = " \t\f"

func splitLines(text string) []string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return strings.Split(strings.ReplaceAll(text, "\r", "\n"), "\n")
}

// continues reports whether the line ends in an odd number of backslashes: an even number is
// backslashes that escape each other.
func continues(line string) bool {
	n := len(line) - len(strings.TrimRight(line, `\`))
	return n%2 == 1
}

// splitProperty splits at the first '=', ':' or blank that no backslash escapes. Blanks around the
// separator belong to neither side.
func splitProperty(line string) (key, val string) {
	end := 0
	for end < len(line) && !strings.ContainsRune("=:"+blanks, rune(line[end])) {
		if line[end] == '\\' {
			end++
		}
		end++
	}
	end = min(end, len(line))
	key = line[:end]
	rest := strings.TrimLeft(line[end:], blanks)
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], blanks)
	}
	return key, rest
}

var errUnicodeEscape = errors.New(`\u needs four hexadecimal digits`)

// escapes are the characters that an escaped letter stands for; any other one stands for itself.
var escapes = map[rune]rune{'t': '\t', 'n': '\n', 'r': '\r', 'f': '\f'}

// unescape replaces the escapes of a text. Two \uXXXX that are a surrogate pair are one character.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var units []uint16
	for runes := []rune(s); len(runes) > 0; {
		r := runes[0]
		runes = runes[1:]
		if r == '\\' && len(runes) > 0 {
			r = cmp.Or(escapes[runes[0]], runes[0])
			runes = runes[1:]
			if r == 'u' {
				n := min(len(runes), 4)
				unit, err := strconv.ParseUint(string(runes[:n]), 16, 16)
				if n < 4 || err != nil {
					return "", errUnicodeEscape
				}
				units, runes = append(units, uint16(unit)), runes[4:]
				continue
			}
		}
		units = utf16.AppendRune(units, r)
	}
	return string(utf16.Decode(units)), nil
}
