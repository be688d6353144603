package zoocfg

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
)

// KeyClass is how a key of a configuration file is treated.
type KeyClass int

const (
	KeyUsed        KeyClass = iota // it has an effect
	KeyRefused                     // it requires protection that is missing, and stops the start
	KeyMissing                     // it requires something else that is missing: a warning
	KeyIneffective                 // ZooKeeper has it, and it has no effect here
)

// Key describes one key of a zoo.cfg for people. The same table reads configuration files, so what
// is here is what Load does.
type Key struct {
	// Name is the key as it stands in a file. Of a family of keys, such as server.1, server.2, it
	// ends in N.
	Name string
	// ZooKeeper is ZooKeeper's name: the key in its zoo.cfg, or the Java system property. Empty for
	// lockkeeper's own keys.
	ZooKeeper string
	Class     KeyClass
	// Type is what the value may be, Unit what a number counts. A Default in parentheses is a
	// description.
	Type, Unit, Default string
	// Effect is what the key does here.
	Effect string
}

// Keys are all keys that lockkeeper knows, in alphabetical order without regard to case.
func Keys() []Key {
	var keys []Key
	for name, def := range knownKeys {
		keys = append(keys, def.describe(name))
	}
	for family, def := range keyFamilies {
		keys = append(keys, def.describe(family+"N"))
	}
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)),
			strings.Compare(a.Name, b.Name))
	})
	return keys
}

// FindKey returns the key of that name, with or without "zookeeper." in front of a Java system
// property. For server.3 it is the family server.N.
func FindKey(name string) (Key, bool) {
	def, bare := lookupKey(name)
	if def == nil {
		return Key{}, false
	}
	if _, single := knownKeys[bare]; !single {
		bare = bare[:strings.IndexByte(bare, '.')+1] + "N"
	}
	return def.describe(bare), true
}

// describe makes the description of the key under that name.
func (def keyDef) describe(name string) Key {
	return Key{
		Name: name, ZooKeeper: def.zooKeeperName(name), Class: def.class,
		Type: def.value.kind, Unit: def.unit, Default: cmp.Or(def.def, def.value.def), Effect: def.effect,
	}
}

func (def keyDef) zooKeeperName(shown string) string {
	switch {
	case def.own:
		return ""
	case def.zooKeeper != "":
		return def.zooKeeper
	case def.property:
		return "zookeeper." + shown
	}
	return shown
}

// NearestKey returns the known key that was probably meant by name, and how many typing errors lie
// between them (see Nearest).
func NearestKey(name string) (nearest string, edits int) {
	return Nearest(strings.TrimPrefix(name, "zookeeper."), func(yield func(string) bool) {
		for _, k := range Keys() {
			if !yield(k.Name) {
				return
			}
		}
	})
}

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
			if (numbered || strings.HasSuffix(head, ".")) &&
				distance(strings.ToLower(head), strings.ToLower(family)) <= 1 {
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
