package secure

import (
	"bytes"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"lockkeeper/internal/testcert"
)

func TestNaming(t *testing.T) {
	ca := testcert.NewCA(t, "authority")
	cert := ca.Issue(t, testcert.Request{Subject: pkix.Name{CommonName: "bob"}, Hosts: []string{"b.example", "c.example", "10.0.0.1"},
		URI: "spiffe://example/ns/prod/sa/bob"}).Cert
	all := regexp.MustCompile(".*")
	for name, c := range map[string]struct {
		naming Naming
		want   string
		bad    bool
	}{
		"subject":     {Naming{}, "CN=bob", false},
		"URI":         {Naming{SAN: true, Type: sanURI, Match: all, Extract: all}, "spiffe://example/ns/prod/sa/bob", false},
		"part of it":  {Naming{SAN: true, Type: sanURI, Match: all, Extract: regexp.MustCompile("sa/(.*)"), Group: 1}, "bob", false},
		"address":     {Naming{SAN: true, Type: sanIP, Match: all, Extract: all}, "10.0.0.1", false},
		"two names":   {Naming{SAN: true, Type: sanDNS, Match: all, Extract: all}, "CN=bob", true},
		"one of them": {Naming{SAN: true, Type: sanDNS, Match: regexp.MustCompile("^b"), Extract: all}, "b.example", false},
		"none":        {Naming{SAN: true, Type: sanEmail, Match: all, Extract: all}, "CN=bob", true},
		"no match":    {Naming{SAN: true, Type: sanURI, Match: all, Extract: regexp.MustCompile("^x")}, "CN=bob", true},
	} {
		if got, err := c.naming.ID(cert); got != c.want || (err != nil) != c.bad {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
}

// names are subjects in DER: hand-picked ones, then random ones.
func names(t *testing.T) (ders [][]byte) {
	t.Helper()
	add := func(sets ...attributeSET) {
		der, err := asn1.Marshal(sets)
		if err != nil {
			t.Fatal(err)
		}
		ders = append(ders, der)
	}
	one := func(oid asn1.ObjectIdentifier, tag int, text string) attribute {
		return attribute{oid, asn1.RawValue{Tag: tag, Bytes: []byte(text)}}
	}
	cn, o := asn1.ObjectIdentifier{2, 5, 4, 3}, asn1.ObjectIdentifier{2, 5, 4, 10}
	oids := []asn1.ObjectIdentifier{cn, o, {2, 5, 4, 6}, {2, 5, 4, 7}, {2, 5, 4, 8}, {2, 5, 4, 9}, {2, 5, 4, 11}, {2, 5, 4, 5}, {2, 5, 4, 12}, {2, 5, 4, 42},
		{0, 9, 2342, 19200300, 100, 1, 1}, {0, 9, 2342, 19200300, 100, 1, 25}, {1, 2, 840, 113549, 1, 9, 1}, {1, 3, 6, 1, 4, 1, 99999, 1}}
	tags := []int{asn1.TagUTF8String, asn1.TagPrintableString, asn1.TagIA5String, asn1.TagT61String, asn1.TagGeneralString, 28}
	texts := []string{"", "a", " ", "  a b ", "#a", "a#b", `,=+<>#;"\`, "a\x00b", "Zürich", "日本\U0001F512", "\ra\r", "a\tb", "\n", "a=b", "a/b:c'd(e)?-."}
	add()
	for _, text := range texts {
		add(attributeSET{one(cn, asn1.TagUTF8String, text)})
	}
	for _, oid := range oids {
		for _, tag := range tags {
			add(attributeSET{one(o, asn1.TagUTF8String, "x")}, attributeSET{one(oid, tag, "abcd")})
		}
	}
	add(attributeSET{one(cn, asn1.TagUTF8String, "a"), one(o, asn1.TagUTF8String, "b")}, attributeSET{one(cn, asn1.TagUTF8String, "c")})
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var sets []attributeSET
		for range 1 + r.IntN(4) {
			text := texts[r.IntN(len(texts))] + texts[r.IntN(len(texts))]
			tag := tags[r.IntN(4)]
			if strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) {
				tag = asn1.TagUTF8String // see TestEncodingsAreNotMixedUp
			}
			sets = append(sets, attributeSET{one(oids[r.IntN(len(oids))], tag, text)})
		}
		add(sets...)
	}
	return ders
}

// TestEncodingsAreNotMixedUp: a name that is another one in its own encoding does not become the
// user with the same bytes in UTF-8.
func TestEncodingsAreNotMixedUp(t *testing.T) {
	for _, c := range []struct {
		tag   int
		bytes string
		want  string
	}{
		{asn1.TagUTF8String, "root", "CN=root"},
		{asn1.TagPrintableString, "root", "CN=root"},
		{asn1.TagBMPString, "root", "CN=#1e04726f6f74"}, // two Chinese characters
		{asn1.TagBMPString, "\x00r\x00o\x00o\x00t", "CN=#1e080072006f006f0074"},
		{asn1.TagT61String, "J\xc3\xbcrgen", "CN=#14074ac3bc7267656e"}, // not Jürgen
		{asn1.TagT61String, "J\xfcrgen", "CN=#14064afc7267656e"},
		{asn1.TagUTF8String, "#1e04726f6f74", `CN=\#1e04726f6f74`},
		{asn1.TagUTF8String, "root\x00", `CN=root\00`},
		{asn1.TagUTF8String, "root,O=Example", `CN=root\,O\=Example`},
	} {
		der, err := asn1.Marshal([]attributeSET{{{asn1.ObjectIdentifier{2, 5, 4, 3}, asn1.RawValue{Tag: c.tag, Bytes: []byte(c.bytes)}}}})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := distinguishedName(der); got != c.want || err != nil {
			t.Errorf("tag %d, %q: %q, %v, want %q", c.tag, c.bytes, got, err, c.want)
		}
	}
}

// TestSubjectsAsJavaPrintsThem compares names with the output of Java's X500Principal, which
// ZooKeeper puts into ACLs.
func TestSubjectsAsJavaPrintsThem(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Java machine")
	}
	java, err := exec.LookPath("java")
	if err != nil {
		t.Skip("there is no java")
	}
	const program = `
import java.util.*; import java.nio.charset.StandardCharsets; import javax.security.auth.x500.X500Principal;
public class Names { public static void main(String[] a) throws Exception {
	Scanner in = new Scanner(System.in);
	while (in.hasNext()) {
		String s;
		try { s = new X500Principal(HexFormat.of().parseHex(in.next())).getName(); } catch (IllegalArgumentException e) { s = "refused"; }
		System.out.println(HexFormat.of().formatHex(s.getBytes(StandardCharsets.UTF_8)));
	}
} }`
	file := filepath.Join(t.TempDir(), "Names.java")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	ders := names(t)
	var in bytes.Buffer
	for _, der := range ders {
		fmt.Fprintf(&in, "%x\n", der)
	}
	cmd := exec.Command(java, "-XX:TieredStopAtLevel=1", file)
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(ders) {
		t.Fatalf("%d answers for %d names", len(lines), len(ders))
	}
	for i, line := range lines {
		want, err := hex.DecodeString(line)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) == "refused" {
			continue
		}
		if got, err := distinguishedName(ders[i]); got != string(want) || err != nil {
			t.Errorf("%x: %q, %v, Java %q", ders[i], got, err, want)
		}
	}
}

func FuzzDistinguishedName(f *testing.F) {
	f.Add([]byte{0x30, 0})
	f.Fuzz(func(t *testing.T, der []byte) { _, _ = distinguishedName(der) })
}
