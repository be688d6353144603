package sasl

import (
	"fmt"
	"strings"
	"testing"
)

func TestUsersFile(t *testing.T) {
	bob, err := Entry("bob", "bobsecret")
	// As 'htdigest -c file zk-sasl-md5 bob' of Apache writes it.
	if want := "bob:zk-sasl-md5:fff08f480333e7694a6455b4a1d5b656"; bob != want || err != nil {
		t.Errorf("entry %q, %v", bob, err)
	}
	eve, err := Entry("eve x", "é:")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseUsers("# who may log in\r\n" + bob + "\r\n\n  " + eve + "\n")
	if err != nil || len(got) != 2 || got["bob"] != NewHA1("bob", "bobsecret") || got["eve x"] != NewHA1("eve x", "é:") {
		t.Errorf("%v, %v", got, err)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", got, got, got, got["bob"]); strings.Contains(text, "fff0") || strings.Contains(text, "255") {
		t.Errorf("printed: %s", text)
	}
	for _, x := range [][2]string{{"", "p"}, {"a:b", "p"}, {"#a", "p"}, {" a", "p"}, {"a\nb", "p"}, {"\xff", "p"}, {"a", ""}, {"a", "\xff"}} {
		if entry, err := Entry(x[0], x[1]); err == nil {
			t.Errorf("user %q, password %q: %q", x[0], x[1], entry)
		}
	}
	for text, want := range map[string]string{
		bob + "\n\n" + bob:            `sasl: line 3: user "bob" is there twice`,
		"bob:bobsecret":               "sasl: line 1: must be user:zk-sasl-md5:HA1, as 'lockkeeper digest -sasl USER' prints it",
		"\nbob:other:" + bob[16:]:     `sasl: line 2: the realm of user "bob" must be zk-sasl-md5`,
		"bob:zk-sasl-md5:bobsecret":   `sasl: line 1: behind the realm of user "bob" must be 32 hexadecimal digits`,
		"bob:zk-sasl-md5:" + "00":     `sasl: line 1: behind the realm of user "bob" must be 32 hexadecimal digits`,
		":zk-sasl-md5:" + bob[16:]:    `sasl: line 1: user "" must have a name without a colon, without blanks around it and without # in front`,
		"b\xff:zk-sasl-md5:" + "0000": `sasl: line 1: the name of a user must be UTF-8`,
	} {
		if _, err := ParseUsers(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

const jaasFile = `// who may log in
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="bob" password="bobsecret"; };
/* the server's
   section */
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule Required
    user_bob="bobsecret" other=word
    "user_a/b"="x1"
    user_esc="q\"\\\101é";
    org.apache.zookeeper.server.auth.DigestLoginModule required user_日=word;
};
`

// TestJAAS: with this file, too, ZooKeeper 3.8.0 lets these users in.
func TestJAAS(t *testing.T) {
	for name, text := range map[string]string{"Unix": jaasFile, "Windows": strings.ReplaceAll(jaasFile, "\n", "\r\n")} {
		users, found, err := ParseJAAS(text, "Server")
		if err != nil || !found || len(users) != 4 {
			t.Fatalf("%s: %v %v %v", name, users, found, err)
		}
		for user, password := range map[string]string{"bob": "bobsecret", "a/b": "x1", "esc": `q"\Aé`, "日": "word"} {
			if users[user] != NewHA1(user, password) {
				t.Errorf("%s: user %q has another password", name, user)
			}
		}
	}
	for _, section := range []string{"Client", "Empty"} {
		users, found, err := ParseJAAS(jaasFile+"Empty { };", section)
		if len(users) != 0 || !found || err != nil {
			t.Errorf("section %s: %v %v %v", section, users, found, err)
		}
	}
	if users, found, err := ParseJAAS("", "Server"); len(users) != 0 || found || err != nil {
		t.Errorf("empty file: %v %v %v", users, found, err)
	}
}

func TestJAASFaults(t *testing.T) {
	const head = "Server {\n org.apache.zookeeper.server.auth.DigestLoginModule required\n "
	for text, want := range map[string]string{
		head + `user_a="x" user_a="y"; };`:        `3: user "a" is there twice`,
		head + `user_a=""; };`:                    `3: the password of user "a" is empty`,
		head + `user_="x"; };`:                    `3: user_ must have a name behind it`,
		head + `user_a="x${y}"; };`:               `3: the password of user "a" has ${, and lockkeeper replaces no properties`,
		head + "user_a=\n\n123; };":               `5: '1' must be in quotes`,
		head + `user_a='x'; };`:                   `3: '\'' must be in quotes`,
		head + `user_a/b="x"; };`:                 `3: '/' must be in quotes`,
		head + `user_a@b="x"; };`:                 `3: '@' must be in quotes`,
		head + "user_a=\"x\n\"; };":               `3: the string does not end`,
		head + "user_a=\"x\\":                     `3: the string does not end`,
		head + `user_a "x"; };`:                   `3: = behind the name of an option is expected`,
		head + `user_a=; };`:                      `3: the value of an option, in quotes, is expected`,
		head + `user_a="x" };`:                    `3: an option, or ; behind the last one, is expected`,
		head + `user_a="x"; }`:                    `3: ; behind the } of a section is expected`,
		head + `user_a="x"; };` + "\n" + head:     `4: section "Server" is there twice`,
		head + `user_a="x"; /* `:                  `3: the comment does not end`,
		"Client {\n a.b.C\nrequird; };":           `3: behind the class must be required, requisite, sufficient or optional`,
		"Server {\n a.b.C required; };":           `2: lockkeeper cannot load a.b.C; it has org.apache.zookeeper.server.auth.DigestLoginModule`,
		"Server { x.Krb5LoginModule required; };": `1: x.Krb5LoginModule: there is no Kerberos (GSSAPI) here, only DIGEST-MD5`,
		"Server":    `1: { is expected`,
		"{":         `1: the name of a section, or the end of the file, is expected`,
		"# comment": `1: '#' must be in quotes`,
		"\xff":      `1: the file is no UTF-8`,
	} {
		if users, _, err := ParseJAAS(text, "Server"); err == nil || err.Error() != "sasl: line "+want {
			t.Errorf("%q: %v %v, want %s", text, users, err, want)
		}
	}
}

// FuzzFiles: no text makes a parser panic or loop, errors name a line that is there, and what is
// read is what Entry writes.
func FuzzFiles(f *testing.F) {
	f.Add(jaasFile)
	f.Add("Server { x.Krb5LoginModule required; };\r/* \\")
	f.Add("bob:zk-sasl-md5:fff08f480333e7694a6455b4a1d5b656\n#\n")
	f.Fuzz(func(t *testing.T, text string) {
		lines := 1 + strings.Count(text, "\n") + strings.Count(text, "\r")
		check := func(err error) {
			syntax, ok := err.(*SyntaxError)
			if err != nil && (!ok || syntax.Line < 1 || syntax.Line > lines) {
				t.Errorf("%v, of %d lines", err, lines)
			}
		}
		_, _, err := ParseJAAS(text, "Server")
		check(err)
		users, err := ParseUsers(text)
		check(err)
		for user := range users {
			if entry, err := Entry(user, "x"); err != nil {
				t.Errorf("%q, %v", entry, err)
			}
		}
	})
}
