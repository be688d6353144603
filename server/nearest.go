package server

import (
	"math"
	"strings"
)

// maxKeyLen bounds the work for a key that is not one, for example a line of prose.
const maxKeyLen = 80

// nearestKey is the known key with the fewest edits from key: what was probably meant.
func nearestKey(key string) string {
	key = strings.ToLower(strings.TrimPrefix(key, "zookeeper."))
	key = key[:min(len(key), maxKeyLen)]
	best, bestEdits := "", math.MaxInt
	try := func(name string) {
		n := edits(key, strings.ToLower(name))
		if n < bestEdits || n == bestEdits && name < best {
			best, bestEdits = name, n
		}
	}
	for name := range knownKeys {
		try(name)
	}
	for family := range keyFamilies {
		try(family + "N")
	}
	return best
}

// edits is the number of letters to insert, delete, replace or swap with their neighbour that turn a into
// b (optimal string alignment).
func edits(a, b string) int {
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
