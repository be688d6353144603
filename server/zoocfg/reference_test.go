package zoocfg

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew")

const configurationPage = "../../docs/configuration.md"

const configurationHead = `# The keys of a configuration file

What a ` + "`zoo.cfg`" + ` may say, what the default is, and what each key does. ` + "`lockkeeper help config KEY`" + `
prints the same for one key. This page is generated from the table that lockkeeper reads
configuration files with (` + "`server/zoocfg/keys.go`" + `), by
` + "`go test ./server/zoocfg -run TestConfigurationPage -update`" + `; a test fails when the two differ.

The syntax is that of Java properties: ` + "`key=value`" + `, ` + "`#`" + ` before a comment, ` + "`\\`" + ` at the end of a line
that goes on. A key that ZooKeeper takes as a Java system property (its name begins with
` + "`zookeeper.`" + `) is taken from the file, with or without that prefix. A default in parentheses is a
description, and not a value. Where no other name is given, ZooKeeper's key has the same name. The
member reports every fault with file, line and key, and does not start.
`

// configurationText is docs/configuration.md as it should be.
func configurationText() []byte {
	var b bytes.Buffer
	b.WriteString(configurationHead)
	section := func(class KeyClass, title, about string) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", title, fold(about, ""))
		if class == KeyIneffective {
			writeIneffective(&b)
			return
		}
		b.WriteString("\n")
		for _, k := range Keys() {
			if k.Class == class {
				writeKey(&b, k)
			}
		}
	}
	section(KeyUsed, "Keys that have an effect", "")
	section(KeyRefused, "Keys that stop the start", "They ask for protection that this version does not have. A start without it would break what the operator relies on.")
	section(KeyMissing, "Keys that are answered with a warning", "They ask for something that is not there and protects nothing.")
	section(KeyIneffective, "Keys without effect", "ZooKeeper has them. They are listed once in the log when the member starts.")
	return bytes.ReplaceAll(b.Bytes(), []byte("\n\n\n"), []byte("\n"))
}

// writeKey writes one key as an item of a list.
func writeKey(b *bytes.Buffer, k Key) {
	def := k.Default
	if !strings.HasPrefix(def, "(") {
		def = "`" + def + "`"
	}
	about := []string{k.Type}
	if k.Unit != "" {
		about = append(about, "in "+k.Unit)
	}
	about = append(about, "default "+def)
	switch k.ZooKeeper {
	case "":
		about = append(about, "lockkeeper's own")
	case k.Name:
	default:
		about = append(about, "in ZooKeeper `"+k.ZooKeeper+"`")
	}
	fmt.Fprintf(b, "- %s\n", fold(fmt.Sprintf("`%s`: %s. %s", k.Name, strings.Join(about, "; "), k.Effect), "  "))
}

// fold breaks a text into lines of at most 100 columns; indent is before each line but the first,
// which is as long as if it had it too.
func fold(text, indent string) string {
	var b strings.Builder
	column := len(indent)
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > 100:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

// writeIneffective lists the keys by what is said about them.
func writeIneffective(b *bytes.Buffer) {
	for _, c := range categories {
		var names []string
		for _, k := range Keys() {
			if k.Class == KeyIneffective && k.Effect == c.effect {
				names = append(names, "`"+k.Name+"`")
			}
		}
		fmt.Fprintf(b, "\n%s\n\n%s\n", fold(c.effect, ""), fold(strings.Join(names, ", "), ""))
	}
}

// TestConfigurationPage: docs/configuration.md says what the table of keys says.
func TestConfigurationPage(t *testing.T) {
	want := configurationText()
	if *update {
		if err := os.WriteFile(configurationPage, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(configurationPage)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stale: write it anew with 'go test ./server/zoocfg -run TestConfigurationPage -update'", configurationPage)
	}
}

// TestKeysAreDescribed: nothing is left out about any key.
func TestKeysAreDescribed(t *testing.T) {
	text, err := os.ReadFile("testdata/zookeeper-keys.txt")
	if err != nil {
		t.Fatal(err)
	}
	zooKeepers := map[string]bool{}
	for _, name := range strings.Fields(string(text)) {
		zooKeepers[name] = true
	}
	for _, k := range Keys() {
		if k.Type == "" || k.Default == "" || !strings.HasSuffix(k.Effect, ".") {
			t.Errorf("%s: type %q, default %q, effect %q: each must be there, and the effect be sentences", k.Name, k.Type, k.Default, k.Effect)
		}
		// What holds for ZooKeeper's names of families and of keys that are only recognised is
		// TestKnownKeys' business.
		if k.Class == KeyUsed && !strings.HasSuffix(k.Name, ".N") && k.ZooKeeper != "" && !zooKeepers[k.ZooKeeper] {
			t.Errorf("%s: ZooKeeper has no %s; lockkeeper's own keys are marked own", k.Name, k.ZooKeeper)
		}
		if k.ZooKeeper == "" && (zooKeepers[k.Name] || zooKeepers["zookeeper."+k.Name]) {
			t.Errorf("%s: ZooKeeper has this key, too", k.Name)
		}
	}
}

// TestConfigDefaults: to set a key to its default changes nothing.
func TestConfigDefaults(t *testing.T) {
	plain, _ := load(t, base, "")
	settled := func(c Config) Config {
		c.origin, c.notices, c.File, c.Data.Dir, c.Logger = nil, nil, "", "", nil
		c = c.WithDefaults()
		c.Logger = nil
		return c
	}
	tried := 0
	for _, k := range Keys() {
		switch {
		case strings.HasPrefix(k.Default, "("):
			continue
		case k.Name == "admin.serverPort": // setting it opens the port
			continue
		case k.Name == "ssl.clientAuth": // setting it needs a port that speaks TLS
			continue
		}
		tried++
		cfg, _ := load(t, base+k.Name+"="+k.Default+"\n", "")
		if got, want := settled(cfg), settled(plain); !reflect.DeepEqual(got, want) {
			t.Errorf("%s=%s is not the default:\n%+v\n%+v", k.Name, k.Default, got, want)
		}
	}
	if tried < 40 {
		t.Errorf("only %d keys have a default to be tried", tried)
	}
}

func TestFindKey(t *testing.T) {
	for name, want := range map[string]string{
		"tickTime": "tickTime", "zookeeper.snapCount": "snapCount", "server.12": "server.N", "zookeeper.authProvider.sasl": "authProvider.N",
		"ssl.quorum.crl": "ssl.quorum.crl", "ticktime": "", "server.": "", "zookeeper.tickTime": "",
	} {
		if k, ok := FindKey(name); k.Name != want || ok != (want != "") {
			t.Errorf("FindKey(%q) = %q, %v, want %q", name, k.Name, ok, want)
		}
	}
}
