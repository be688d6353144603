package sasl

import (
	"errors"
	"strings"
	"testing"
)

var users = Users{
	"bob":   NewHA1("bob", "bobsecret"),
	"esc":   NewHA1("esc", `q"\Aé`),
	"é":     NewHA1("é", "x"),
	"日本":    NewHA1("日本", "x"),
	"super": NewHA1("super", "test"),
}

// TestRecordedExchanges: recorded tokens of clients, and the answers of ZooKeeper 3.8.0.
func TestRecordedExchanges(t *testing.T) {
	for name, x := range map[string]struct{ nonce, token, user, answer string }{
		"ZooKeeper's own client": {
			"q/FMnRRDRQNb5dTzHntwHpFrBZd8KlSaVSB4JugG",
			`charset=utf-8,username="bob",realm="zk-sasl-md5",nonce="q/FMnRRDRQNb5dTzHntwHpFrBZd8KlSaVSB4JugG",` +
				`nc=00000001,cnonce="Q+yz6Y6Mq9ZBnY/V/rV9wNixhwrOD3A37rhPDP7N",digest-uri="zookeeper/zk-sasl-md5",` +
				`maxbuf=65536,response=e52e5f563def809ff706508b4ff4c66f,qop=auth,authzid="bob"`,
			"bob", "rspauth=ac1d467e01590836934833ce23c503a9"},
		"kazoo": {
			"s4sL96IIzlookPATf3sHmqug8a4RIeDS77EOqmhE",
			`qop=auth,realm="zk-sasl-md5",username="bob",nonce="s4sL96IIzlookPATf3sHmqug8a4RIeDS77EOqmhE",` +
				`cnonce="8877674123575304",nc=00000001,digest-uri="zookeeper/zk-sasl-md5",` +
				`response=a42d89c178123d794fd0b427b5278aba`,
			"bob", "rspauth=44fb019b605f81503b504028e9173b70"},
		"a password of ISO 8859-1": {
			"XB/UCwsXvZVUhSAjgLs3lHT9DzCSexdnwmRSX9n8",
			`charset=utf-8,username="esc",realm="zk-sasl-md5",nonce="XB/UCwsXvZVUhSAjgLs3lHT9DzCSexdnwmRSX9n8",` +
				`nc=00000001,cnonce="abc",digest-uri="zookeeper/zk-sasl-md5",maxbuf=65536,` +
				`response=da0b2db8834ffdccf3622ce493f6ad40,qop=auth`,
			"esc", "rspauth=ee4b2b93b5a953467bfc4934e86acfed"},
	} {
		s := NewServer(users)
		s.nonce, s.step = x.nonce, 1
		answer, user, err := s.Step([]byte(x.token))
		if user != x.user || string(answer) != x.answer || err != nil {
			t.Errorf("%s: %q for %q, %v", name, answer, user, err)
		}
		// On another connection the same token is worth nothing.
		again := NewServer(users)
		if _, _, err := again.Step(nil); err != nil {
			t.Fatal(err)
		}
		if _, user, err := again.Step([]byte(x.token)); user != "" || !errors.Is(err, ErrRefused) {
			t.Errorf("%s: replayed: user %q, %v", name, user, err)
		}
	}
}

// client is the message of a client; the fields that are "" are left out, but for the user and the
// password.
type client struct {
	user, password                          string
	charset, realm, nonce, nc, cnonce, qop  string
	uri, authzid, response, extra, username string
}

func bob() client {
	return client{user: "bob", password: "bobsecret", charset: "utf-8", realm: Realm, nc: "00000001", cnonce: "abc",
		qop: "auth", uri: "zookeeper/zk-sasl-md5"}
}

// token is the client's response to the challenge of s, by the formulas of the RFC.
func (c client) token(s *Server) []byte {
	nonce := s.nonce
	if c.nonce == "" {
		c.nonce = nonce
	}
	ha1 := NewHA1(c.user, c.password)
	a1 := string(ha1[:]) + ":" + nonce + ":" + c.cnonce
	if c.authzid != "" {
		a1 += ":" + c.authzid
	}
	if c.response == "" {
		c.response = hexMD5(hexMD5(a1) + ":" + nonce + ":00000001:" + c.cnonce + ":auth:" + hexMD5("AUTHENTICATE:"+c.uri))
	}
	if c.username == "" {
		c.username = c.user
	}
	var fields []string
	for _, f := range [][2]string{{"charset", c.charset}, {"username", c.username}, {"realm", c.realm}, {"nonce", c.nonce},
		{"nc", c.nc}, {"cnonce", c.cnonce}, {"qop", c.qop}, {"digest-uri", c.uri}, {"authzid", c.authzid},
		{"response", c.response}} {
		if f[1] != "" {
			fields = append(fields, f[0]+`="`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(f[1])+`"`)
		}
	}
	return []byte(strings.Join(fields, ",") + c.extra)
}

// TestResponses: which responses prove who somebody is. What ZooKeeper 3.8.0 does with the same is
// in docs/compatibility.md where it differs.
func TestResponses(t *testing.T) {
	for name, x := range map[string]struct {
		change func(*client)
		user   string // "": refused
		reason string
	}{
		"right":              {func(*client) {}, "bob", ""},
		"digest-uri's case":  {func(c *client) { c.uri = "ZooKeeper/ZK-sasl-md5" }, "bob", ""},
		"no nc":              {func(c *client) { c.nc = "" }, "bob", ""},
		"nc":                 {func(c *client) { c.nc = "00000002" }, "bob", ""},
		"no qop":             {func(c *client) { c.qop = "" }, "bob", ""},
		"no charset":         {func(c *client) { c.charset = "" }, "bob", ""},
		"unknown directive":  {func(c *client) { c.extra = ",foo=bar, ,maxbuf=65536," }, "bob", ""},
		"authzid":            {func(c *client) { c.authzid = "bob" }, "bob", ""},
		"authzid of another": {func(c *client) { c.authzid = "super" }, "bob", ""},
		"ISO 8859-1 as such": {func(c *client) { c.charset, c.user, c.username, c.password = "", "é", "\xe9", "x" }, "é", ""},
		"UTF-8":              {func(c *client) { c.user, c.password = "日本", "x" }, "日本", ""},

		"wrong password":    {func(c *client) { c.password = "x" }, "", "wrong password"},
		"another's name":    {func(c *client) { c.username = "super" }, "", "wrong password"},
		"unknown user":      {func(c *client) { c.user = "eve" }, "", `there is no user "eve"`},
		"name of nobody":    {func(c *client) { c.username = "eve" }, "", `there is no user "eve"`},
		"no user":           {func(c *client) { c.user = "" }, "", "no username"},
		"digest-uri's host": {func(c *client) { c.uri = "zookeeper/other" }, "", "digest-uri"},
		"digest-uri's rest": {func(c *client) { c.uri += "/foo" }, "", "digest-uri"},
		"service":           {func(c *client) { c.uri = "zk/zk-sasl-md5" }, "", "digest-uri"},
		"no digest-uri":     {func(c *client) { c.uri = "" }, "", "digest-uri"},
		"realm":             {func(c *client) { c.realm = "other" }, "", "realm"},
		"no realm":          {func(c *client) { c.realm = "" }, "", "realm"},
		"qop":               {func(c *client) { c.qop = "auth-int" }, "", "qop"},
		"no cnonce":         {func(c *client) { c.cnonce = "" }, "", "no cnonce"},
		"nonce":             {func(c *client) { c.nonce = "zzz" }, "", "nonce"},
		"charset":           {func(c *client) { c.charset = "utf-16" }, "", "charset"},
		"no UTF-8":          {func(c *client) { c.username = "\xff" }, "", "no UTF-8"},
		"twice":             {func(c *client) { c.extra = `,username="bob"` }, "", "twice"},
		"string ends not":   {func(c *client) { c.extra = `,x="` }, "", "does not end"},
		"no list":           {func(c *client) { c.extra = `,x` }, "", "not a list"},
		"response":          {func(c *client) { c.response = "0" }, "", "wrong password"},
		"long":              {func(c *client) { c.extra = "," + strings.Repeat("x", MaxTokenBytes) }, "", "a token of"},
	} {
		s := NewServer(users)
		challenge, _, err := s.Step([]byte("any"))
		if want := `realm="zk-sasl-md5",nonce="` + s.nonce + `",charset=utf-8,algorithm=md5-sess`; string(challenge) != want || err != nil {
			t.Fatalf("challenge %q, %v", challenge, err)
		}
		c := bob()
		x.change(&c)
		_, user, err := s.Step(c.token(s))
		switch {
		case user != x.user:
			t.Errorf("%s: user %q, %v", name, user, err)
		case user == "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), x.reason)):
			t.Errorf("%s: %v, want %q", name, err, x.reason)
		case user != "" && err != nil:
			t.Errorf("%s: %v", name, err)
		}
		// Whatever it was, it was the last one.
		for _, token := range [][]byte{nil, bob().token(s)} {
			if _, user, err := s.Step(token); user != "" || !errors.Is(err, ErrRefused) {
				t.Errorf("%s: another token: user %q, %v", name, user, err)
			}
		}
	}
}

// TestNonces: no two exchanges have the same.
func TestNonces(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		s := NewServer(nil)
		if _, _, err := s.Step(nil); err != nil || len(s.nonce) != 40 || seen[s.nonce] {
			t.Fatalf("nonce %q: %v", s.nonce, err)
		}
		seen[s.nonce] = true
	}
}

// FuzzServer: whatever a client without a password sends, it is no user, and nothing panics. Right
// tokens that are changed in one place prove nothing, or what they proved before.
func FuzzServer(f *testing.F) {
	for _, c := range []client{bob(), {user: "eve"}} {
		f.Add([]byte{}, c.token(&Server{nonce: "n"}))
	}
	f.Add([]byte("x"), []byte(`a="\",b= c ,,d="e"`))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		s := NewServer(users)
		if _, user, err := s.Step(first); user != "" || err == nil != (len(first) <= MaxTokenBytes) {
			t.Fatalf("user %q, %v", user, err)
		}
		s.nonce = "n" // so that the seeds are right
		answer, user, err := s.Step(second)
		switch {
		case user == "" && (answer != nil || !errors.Is(err, ErrRefused)):
			t.Fatalf("answer %q, %v", answer, err)
		case user == "bob" && !strings.Contains(string(second), "response="):
			t.Fatal("proved by nothing")
		}
		if _, user, err := s.Step(second); user != "" || err == nil {
			t.Fatalf("a third token: user %q, %v", user, err)
		}
	})
}
