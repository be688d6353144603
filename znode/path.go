package znode

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Paths of the nodes that are always there (docs/protocol/semantics.md sections 3.3 and 9).
const (
	rootPath      = "/"
	zookeeperPath = "/zookeeper"
	quotaPath     = "/zookeeper/quota"
	configPath    = "/zookeeper/config"
)

var builtInPaths = []string{rootPath, zookeeperPath, quotaPath, configPath}

// builtIn reports whether path belongs to a node that cannot be deleted.
func builtIn(path string) bool { return slices.Contains(builtInPaths, path) }

// ValidPath reports whether a node may have this path (docs/protocol/semantics.md section 2.1).
func ValidPath(path string) bool {
	if path == rootPath {
		return true
	}
	if path == "" || path[0] != '/' || path[len(path)-1] == '/' {
		return false
	}
	start := 1 // of the component at i
	for i := 1; i < len(path); i++ {
		c := path[i]
		if c == '/' {
			if !validComponent(path[start:i]) {
				return false
			}
			start = i + 1
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(path[i:])
			if !validRune(r) {
				return false
			}
			i += size - 1
			continue
		}
		if c < ' ' || c == 0x7F {
			return false
		}
	}
	return validComponent(path[start:])
}

// validComponent checks a name as a whole, beyond its characters.
func validComponent(name string) bool { return name != "" && name != "." && name != ".." }

// validRune judges a character beyond ASCII. Invalid UTF-8 is U+FFFD here and thereby refused.
func validRune(r rune) bool {
	switch {
	case r <= 0x9F, r >= 0xD800 && r <= 0xF8FF, r >= 0xFFF0:
		// The last range takes in everything outside of the basic plane, which Java sees as
		// surrogates.
		return false
	}
	return true
}

// split returns the path of the parent ("/" for children of the root) and the name. ok is false for
// the paths that the create and delete families refuse before they look at the tree
// (docs/protocol/semantics.md section 2.2).
func split(path string) (parent, name string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 || strings.IndexByte(path, 0) >= 0 {
		return "", "", false
	}
	return path[:max(i, 1)], path[i+1:], true
}

// sequenceDigits is the width of the number that the create of a sequential node appends to its
// name.
const sequenceDigits = 10

// parentOf returns the path of the parent of a valid path other than the root.
func parentOf(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 1)] }
