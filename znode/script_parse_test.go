package znode

import (
	"bytes"
	"strconv"
	"strings"

	"lockkeeper/wire"
)

// args are the words of a command: those in order and those with a name.
type args struct {
	sc    *script
	words []string
	named map[string]string
}

func (sc *script) parse(line string) *args {
	a := &args{sc: sc, named: map[string]string{}}
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimSpace(rest) {
		if rest[0] == '"' { // a quoted path
			q, err := strconv.QuotedPrefix(rest)
			if err != nil {
				sc.fatalf("%s: %v", rest, err)
			}
			word, _ := strconv.Unquote(q)
			a.words = append(a.words, word)
			rest = rest[len(q):]
			continue
		}
		word, after, _ := strings.Cut(rest, " ")
		name, value, isNamed := strings.Cut(word, "=")
		if !isNamed || strings.HasPrefix(word, "/") {
			a.words = append(a.words, word)
			rest = after
			continue
		}
		if strings.HasPrefix(value, `"`) {
			q, err := strconv.QuotedPrefix(rest[len(name)+1:])
			if err != nil {
				sc.fatalf("%s: %v", rest, err)
			}
			value, _ = strconv.Unquote(q)
			after = rest[len(name)+1+len(q):]
		}
		a.named[name] = value
		rest = after
	}
	return a
}

func (a *args) word(i int) string {
	if i >= len(a.words) {
		a.sc.fatalf("a word is missing")
	}
	return a.words[i]
}

func (a *args) text(name, otherwise string) string {
	if v, ok := a.named[name]; ok {
		return v
	}
	return otherwise
}

// password is a text of at most 16 bytes, with zeros behind it.
func (a *args) password(otherwise wire.Password) (p wire.Password) {
	v, ok := a.named["password"]
	if !ok {
		return otherwise
	}
	copy(p[:], v)
	return p
}

func (a *args) num(name string, otherwise int64) int64 {
	v, ok := a.named[name]
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseInt(v, 0, 64)
	if err != nil {
		a.sc.fatalf("%v", err)
	}
	return n
}

// data returns the data= of a command: null, text, or a byte and how often (x*50).
func (a *args) data() []byte {
	v, ok := a.named["data"]
	if !ok {
		return []byte{}
	}
	if v == "null" {
		return nil
	}
	if c, n, ok := strings.Cut(v, "*"); ok {
		times, err := strconv.Atoi(n)
		if err != nil {
			a.sc.fatalf("%v", err)
		}
		return bytes.Repeat([]byte(c), times)
	}
	return []byte(v)
}

const permLetters = "rwcda"

// acl returns the acl= of a command: perms:scheme:id, several separated by commas.
func (a *args) acl() []wire.ACL {
	switch v := a.text("acl", "open"); v {
	case "open":
		return wire.OpenACL
	case "null":
		return nil
	case "empty":
		return []wire.ACL{}
	default:
		var acl []wire.ACL
		for _, item := range strings.Split(v, ",") {
			parts := strings.SplitN(item, ":", 3)
			e := wire.ACL{}
			if n, err := strconv.Atoi(parts[0]); err == nil {
				e.Perms = wire.Perm(n)
			} else {
				for _, c := range parts[0] {
					e.Perms |= 1 << strings.IndexRune(permLetters, c)
				}
			}
			e.Scheme, e.ID.ID = parts[1], parts[2]
			if e.Scheme == "null" {
				e.Scheme, e.NullScheme = "", true
			}
			if e.ID.ID == "null" {
				e.ID.ID, e.NullID = "", true
			}
			acl = append(acl, e)
		}
		return acl
	}
}

// ids returns the as= of a command: scheme:id, several separated by commas.
func (a *args) ids() []Identity {
	var ids []Identity
	if v := a.text("as", ""); v != "" {
		for _, item := range strings.Split(v, ",") {
			scheme, id, _ := strings.Cut(item, ":")
			ids = append(ids, Identity{scheme, id})
		}
	}
	return ids
}

var modes = map[string]wire.CreateMode{
	"persistent": wire.ModePersistent, "ephemeral": wire.ModeEphemeral, "seq": wire.ModePersistentSequential,
	"ephemeralseq": wire.ModeEphemeralSequential, "container": wire.ModeContainer, "ttl": wire.ModePersistentTTL,
	"ttlseq": wire.ModePersistentSequentialTTL,
}

func (a *args) mode() wire.CreateMode {
	v := a.text("mode", "persistent")
	if m, ok := modes[v]; ok {
		return m
	}
	return wire.CreateMode(a.num("mode", 0))
}

var opsByName = func() map[string]wire.Op {
	m := map[string]wire.Op{}
	for op := wire.Op(-11); op < 110; op++ {
		m[op.String()] = op
	}
	return m
}()

// record returns the body of the op named by word i and described by those after it.
func (a *args) record(i int) (wire.Op, wire.Record) {
	op, ok := opsByName[a.word(i)]
	if !ok {
		a.sc.fatalf("no op %q", a.word(i))
	}
	version := int32(a.num("v", -1))
	switch op {
	case wire.OpCreate, wire.OpCreate2, wire.OpCreateContainer:
		return op, wire.CreateRequest{Path: a.word(i + 1), Data: a.data(), ACL: a.acl(), Mode: a.mode()}
	case wire.OpCreateTTL:
		return op, wire.CreateTTLRequest{Path: a.word(i + 1), Data: a.data(), ACL: a.acl(), Mode: a.mode(), TTL: a.num("ttl", -1)}
	case wire.OpDelete:
		return op, wire.DeleteRequest{Path: a.word(i + 1), Version: version}
	case wire.OpSetData:
		return op, wire.SetDataRequest{Path: a.word(i + 1), Data: a.data(), Version: version}
	case wire.OpSetACL:
		return op, wire.SetACLRequest{Path: a.word(i + 1), ACL: a.acl(), Version: version}
	case wire.OpCheck:
		return op, wire.CheckVersionRequest{Path: a.word(i + 1), Version: version}
	case wire.OpSync:
		return op, wire.SyncRequest{Path: a.word(i + 1)}
	case wire.OpDeleteContainer:
		return op, wire.PathRequest{Path: a.word(i + 1)}
	}
	return op, nil
}
