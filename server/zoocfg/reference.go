package zoocfg

import (
	"cmp"
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
		keys = append(keys, def.describe(name, name))
	}
	for family, def := range keyFamilies {
		keys = append(keys, def.describe(family, family+"N"))
	}
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)), strings.Compare(a.Name, b.Name))
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
	if _, plain := knownKeys[bare]; plain {
		return def.describe(bare, bare), true
	}
	family := bare[:strings.IndexByte(bare, '.')+1]
	return def.describe(family, family+"N"), true
}

// describe makes the description of the key or family with that name in the tables, under the name
// shown.
func (def keyDef) describe(name, shown string) Key {
	return Key{
		Name: shown, ZooKeeper: def.zooKeeperName(shown), Class: classOf(name),
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

// classOf is the class of the table that has the key or family.
func classOf(name string) KeyClass {
	in := func(table map[string]keyDef) bool { _, ok := table[name]; return ok }
	switch {
	case in(usedKeys), name == "server.", name == "authProvider.":
		return KeyUsed
	case in(refusedKeys), name == "group.", name == "weight.":
		return KeyRefused
	case in(missingKeys):
		return KeyMissing
	}
	return KeyIneffective
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
