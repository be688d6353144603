package pemfile

import (
	"bytes"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
)

// file has a block of each of these contents.
func file(contents ...string) string {
	var b strings.Builder
	for _, c := range contents {
		b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(c)}))
	}
	return b.String()
}

var (
	first  = strings.Repeat("first authority ", 8)
	second = strings.Repeat("second authority ", 8)
)

// TestNothingIsLost: both blocks of a file are read, or an error names the line.
func TestNothingIsLost(t *testing.T) {
	a, b := file(first), file(second)
	body := strings.Split(b, "\n")[1]
	for name, c := range map[string]struct {
		text string
		want string // the error; empty: both blocks are read
	}{
		"plain":                     {a + b, ""},
		"no newline between":        {strings.TrimSpace(a) + b, ""},
		"byte order mark first":     {"\ufeff" + a + b, ""},
		"byte order mark between":   {a + "\ufeff" + b, ""},
		"marks, no newline between": {"\ufeff" + strings.TrimSpace(a) + "\ufeff" + b, ""},
		"spaces":                    {"  " + a + "  " + b, ""},
		"carriage returns":          {strings.ReplaceAll(a+b, "\n", "\r"), ""},
		"Windows":                   {strings.ReplaceAll(a+b, "\n", "\r\n"), ""},
		"indented":                  {"    " + strings.ReplaceAll(a+b, "\n", "\n    "), ""},
		"empty lines":               {strings.ReplaceAll(a+b, "\n", "\n\n"), ""},
		"in one line each":          {strings.ReplaceAll(a, "\n", " ") + "\n" + strings.ReplaceAll(b, "\n", " "), ""},
		"comments":                  {"# " + a[:20] + "\nsubject=/CN=a\nBag Attributes\n    localKeyID: 54 69\n===\n" + a + "--- second ---\n" + b + "the end\n", ""},
		"commented out":             {a + b + "# " + strings.ReplaceAll(strings.TrimSpace(a), "\n", "\n# "), ""},

		"damaged":             {a + strings.Replace(b, body[:3], "!!!", 1), `line 7: '!' in the CERTIFICATE that begins in line 6: it is damaged`},
		"cut off":             {a + b[:len(b)/2], "line 6: BEGIN CERTIFICATE has no END: the file is cut off"},
		"cut off before more": {a[:len(a)/2] + "\n" + b, "line 1: BEGIN CERTIFICATE has no END before the next BEGIN, in line 4"},
		"a character missing": {a + strings.Replace(b, body, body[1:], 1), "line 6: the CERTIFICATE is damaged: it is no base64"},
		"empty":               {a + file(""), "line 6: the CERTIFICATE is empty"},
		"newlines as text":    {strings.ReplaceAll(a+b, "\n", `\n`), `line 1: '\\' in the CERTIFICATE that begins in line 1: it is damaged`},
		"no BEGIN":            {a + b[len("-----BEGIN CERTIFICATE-----\n"):], "line 6: " + quote(body) + " looks like a part of a block"},
		"BEGIN with four":     {a + b[1:], "line 6: "},
		"BEGIN cut":           {a + strings.Replace(b, "CERTIFICATE-----", "CERTIFICA", 1), "line 6: "},
		"BEGIN in lower case": {a + strings.Replace(b, "BEGIN CERTIFICATE", "begin certificate", 1), "line 6: "},
		"BEGIN with a word":   {a + "second: " + b, "line 6: "},
		"typographer's dash":  {a + strings.Replace(b, "-----B", "—B", 1), "line 6: "},
		"only END":            {a + "-----END CERTIFICATE-----\n" + b, "line 6: "},
		"dashes shared":       {strings.TrimSpace(a) + b[len("-----"):], "line 5: an END and a BEGIN share their dashes"},
		"dashes of BEGINs":    {"-----BEGIN A-----BEGIN : x\n" + b, "line 1: two BEGINs share their dashes"},
		"some dashes shared":  {"-----BEGIN A-------BEGIN : x\n" + b, "line 1: two BEGINs share their dashes"},
		"some shared by END":  {strings.TrimSpace(a) + "---BEGIN X-----\n", "line 5: an END and a BEGIN share their dashes"},
		"no name of a header": {"-----BEGIN A-----\n--END : x\n" + b, "'-' in the A that begins in line 1"},
		"BEGIN ends a line":   {a + "0-----BEGIN \n" + b, "line 6: \"0-----BEGIN\" looks like the beginning"},
		"BEGIN in a header":   {a + "-----BEGIN X-----\nx: -----BEGIN Y-----\n\nAAAA\n-----END X-----\n" + b, "line 6: BEGIN X has no END before the next BEGIN, in line 7"},
		"END of another":      {a + strings.Replace(b, "END CERT", "END TRUSTED CERT", 1), `is not the END of the CERTIFICATE that begins in line 6`},
		"NUL":                 {a + "\x00" + b, "line 6: has a NUL byte"},
		"UTF-16":              {"\xff\xfe-\x00-\x00", "line 1: the file is in UTF-16"},
	} {
		blocks, err := Parse([]byte(c.text))
		var fault *Error
		switch {
		case c.want != "" && (!errors.As(err, &fault) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		case c.want != "":
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case len(blocks) != 2 || string(blocks[0].Bytes) != first || string(blocks[1].Bytes) != second:
			t.Errorf("%s: %d blocks, or others", name, len(blocks))
		}
	}
}

// TestHeaders: Parse reads the headers of RFC 1421, as OpenSSL writes them above an encrypted key.
func TestHeaders(t *testing.T) {
	want := &pem.Block{Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}, Bytes: []byte(first)}
	blocks, err := Parse(append([]byte("note\n\n"), pem.EncodeToMemory(want)...))
	if err != nil || len(blocks) != 1 {
		t.Fatal(blocks, err)
	}
	got := blocks[0]
	if got.Line != 3 || got.Type != want.Type || got.Headers["DEK-Info"] != "AES-256-CBC,00" || !bytes.Equal(got.Bytes, want.Bytes) {
		t.Errorf("%+v", got)
	}
}

// FuzzParse: no text makes Parse panic, and of a text that it takes each BEGIN is a block. It finds
// every block that encoding/pem finds, which takes boundaries for lines.
func FuzzParse(f *testing.F) {
	f.Add([]byte(file(first, second)))
	f.Add([]byte("\ufeff" + strings.TrimSpace(file(first)) + file(second) + "# -----BEGIN X-----\n"))
	f.Add([]byte("-----BEGIN A-----\nb: c\n\nAAAA\n-----END A-----"))
	f.Add([]byte(strings.TrimSpace(file(first)) + "BEGIN "))
	f.Add([]byte(strings.TrimSpace(file(first)) + "# -----BEGIN X-----"))
	f.Add([]byte("0-----BEGIN "))
	f.Add([]byte("-----BEGIN A-----BEGIN : x\n\nAAAA\n-----END A-----"))
	f.Add([]byte("-----BEGIN A-------BEGIN : x\n\nAAAA\n-----END A-----"))
	f.Add([]byte("-----BEGIN A-----\nx: -----BEGIN \n\nAAAA\n-----END A-----"))
	f.Fuzz(func(t *testing.T, text []byte) {
		blocks, err := Parse(text)
		if err != nil {
			return
		}
		begins := 0
		for _, line := range lines(string(text)) {
			uncommented, _, _ := strings.Cut(line, "#")
			begins += strings.Count(uncommented, beginMark)
		}
		if begins > len(blocks) {
			t.Fatalf("%d BEGIN, %d blocks: %q", begins, len(blocks), text)
		}
		for i := range blocks {
			again, err := Parse(pem.EncodeToMemory(&pem.Block{Type: blocks[i].Type, Bytes: blocks[i].Bytes}))
			if err != nil || len(again) != 1 || !bytes.Equal(again[0].Bytes, blocks[i].Bytes) {
				t.Fatalf("%v %v: %q", again, err, text)
			}
		}
	})
}
