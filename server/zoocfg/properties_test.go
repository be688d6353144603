package zoocfg

import (
	"fmt"
	"slices"
	"testing"
)

// parsed writes properties as line|key|value, to compare them.
func parsed(props []property) []string {
	var out []string
	for _, p := range props {
		out = append(out, fmt.Sprintf("%d|%s|%s", p.line, p.key, p.val))
	}
	return out
}

// TestParseProperties follows the description of java.util.Properties.load, rule by rule.
func TestParseProperties(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"empty":                      {"", nil},
		"blank lines":                {"\n \t\f\n\r\n", nil},
		"equals":                     {"a=b", []string{"1|a|b"}},
		"colon":                      {"a:b", []string{"1|a|b"}},
		"blank":                      {"a b", []string{"1|a|b"}},
		"blanks around equals":       {"  a \t= \f b", []string{"1|a|b"}},
		"only the first separates":   {"a = = b", []string{"1|a|= b"}},
		"no separator":               {"a", []string{"1|a|"}},
		"no value":                   {"a=", []string{"1|a|"}},
		"no key":                     {"=b", []string{"1||b"}},
		"value with equals":          {"server.1=h:1:2;3=4", []string{"1|server.1|h:1:2;3=4"}},
		"trailing blanks":            {"a=b  \t", []string{"1|a|b"}},
		"number sign":                {"#a=b\n  # c=d\ne=f#g", []string{"3|e|f#g"}},
		"exclamation mark":           {"!a=b\ne=!f", []string{"2|e|!f"}},
		"comment is not continued":   {"# a \\\nb=c", []string{"2|b|c"}},
		"line ends":                  {"a=1\r\nb=2\rc=3\nd=4", []string{"1|a|1", "2|b|2", "3|c|3", "4|d|4"}},
		"continued":                  {"a=b,\\\n   c,\\\n\td\ne=f", []string{"1|a|b,c,d", "4|e|f"}},
		"continued key":              {"ab\\\n  cd=e", []string{"1|abcd|e"}},
		"continued by a comment":     {"a=b\\\n#c", []string{"1|a|b#c"}},
		"continued by an empty line": {"a=b\\\n\nc=d", []string{"1|a|b", "3|c|d"}},
		"continued by nothing":       {"a=b\\", []string{"1|a|b"}},
		"even backslashes":           {"a=b\\\\\nc=d", []string{"1|a|b\\", "2|c|d"}},
		"odd backslashes":            {"a=b\\\\\\\nc=d", []string{"1|a|b\\c=d"}},
		"escaped letters":            {`a=\t\n\r\f\q\\`, []string{"1|a|q\\"}},
		"escaped separators":         {`a\=b\:c\ d=e`, []string{"1|a=b:c d|e"}},
		"escaped number sign":        {`\#a=b`, []string{"1|#a|b"}},
		"unicode":                    {`a=\u00e9\u20AC`, []string{"1|a|é€"}},
		"surrogate pair":             {`a=\uD83D\uDE00!`, []string{"1|a|😀!"}},
		"lone surrogate":             {`a=\uD83Dx`, []string{"1|a|\uFFFDx"}},
		"lone surrogate, no pair":    {`a=\uD83D\u0041`, []string{"1|a|\uFFFDA"}},
		"UTF-8":                      {"a=é", []string{"1|a|é"}},
		"byte order mark":            {"\ufeffa=b", []string{"1|a|b"}},
		"Windows path, unescaped":    {`a=C:\zk\data`, []string{"1|a|C:zkdata"}},
	} {
		t.Run(name, func(t *testing.T) {
			props, faults := parseProperties("f", c.text)
			got := parsed(props)
			if !slices.Equal(got, c.want) || len(faults) > 0 {
				t.Errorf("got %q, faults %v, want %q", got, faults, c.want)
			}
		})
	}
}

func TestParsePropertiesFaults(t *testing.T) {
	props, faults := parseProperties("zoo.cfg", "a=1\nb=\\u12\nc\\uXYZW=1\nd=2")
	if got, want := faults.Error(), "zoo.cfg:2: b: \\u needs four hexadecimal digits\n"+
		"zoo.cfg:3: c\\uXYZW: \\u needs four hexadecimal digits"; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if got, want := parsed(props), []string{"1|a|1", "4|d|2"}; !slices.Equal(got, want) {
		t.Errorf("the other lines: got %q, want %q", got, want)
	}
}

func FuzzParseProperties(f *testing.F) {
	f.Add("a=b\\\n c:d\n#e\nf\\u0041=g")
	f.Fuzz(func(t *testing.T, text string) {
		props, faults := parseProperties("f", text)
		lines := len(splitLines(text))
		if len(props)+len(faults) > lines {
			t.Errorf("%d properties and %d faults in %d lines", len(props), len(faults), lines)
		}
		for _, p := range props {
			if p.line < 1 || p.line > lines {
				t.Errorf("line %d of %d", p.line, lines)
			}
		}
	})
}

// TestRedactsComments: a secret that is commented out stays one.
func TestRedactsComments(t *testing.T) {
	text, _ := Redact("# an old one:\n#DigestAuthenticationProvider.superDigest=super:abc\n ! ssl.keyStore.password = abc\n## admin.viewerDigest=v:abc\ntickTime=2000")
	want := "# an old one:\n#DigestAuthenticationProvider.superDigest=*****\n#ssl.keyStore.password=*****\n#admin.viewerDigest=*****\ntickTime=2000"
	if text != want {
		t.Errorf("%s", text)
	}
}
