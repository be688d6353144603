package zoocfg

import (
	"iter"
	"maps"
	"math"
	"strings"
)

// maxNameLen bounds the work for a text that is no key, for example a line of prose.
const maxNameLen = 80

// Nearest returns the known name with the fewest edits from name, without regard to case, which was
// probably meant. edits is how many letters to insert, delete, replace or swap with their
// neighbour; of several names, the first in alphabetical order is returned. Without any known name
// it returns "".
func Nearest(name string, known iter.Seq[string]) (nearest string, edits int) {
	name = strings.ToLower(name)
	name = name[:min(len(name), maxNameLen)]
	edits = math.MaxInt
	for k := range known {
		n := distance(name, strings.ToLower(k))
		if n < edits || n == edits && k < nearest {
			nearest, edits = k, n
		}
	}
	return nearest, edits
}

// misspeltKey returns the known key that is within one typing error of key: one letter too many,
// too few or wrong, two neighbours swapped, or any letters in the wrong case. The prefix of a Java
// system property before a key that is none counts as one, too. Of a family, as server.N, the part
// that the operator chooses stays as it is.
func misspeltKey(key string) (meant string, ok bool) {
	key = strings.TrimPrefix(key, "zookeeper.")
	for family := range keyFamilies {
		for n := len(family) - 1; n <= len(family)+1 && n < len(key); n++ {
			head, tail := key[:n], key[n:]
			numbered := strings.Trim(tail, "0123456789") == ""
			if (numbered || strings.HasSuffix(head, ".")) && distance(strings.ToLower(head), strings.ToLower(family)) <= 1 {
				return family + tail, true
			}
		}
	}
	nearest, edits := Nearest(key, maps.Keys(knownKeys))
	return nearest, edits <= 1
}

// distance counts edits (optimal string alignment: no part is edited twice).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
