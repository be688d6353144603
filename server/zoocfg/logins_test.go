package zoocfg

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"lockkeeper/session/sasl"
)

// writeSecret writes a file that nobody else can read.
func writeSecret(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const jaas = "Server {\n org.apache.zookeeper.server.auth.DigestLoginModule required user_bob=\"one\"\n user_super=\"two\";\n};\n" +
	"Other { org.apache.zookeeper.server.auth.DigestLoginModule required user_eve=\"three\"; };\n"

// TestSASLUsers: users come from a JAAS file, from a file of hashed entries, and from a password of
// the user super.
func TestSASLUsers(t *testing.T) {
	ann, err := sasl.Entry("ann", "four")
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		text string
		want map[string]string // passwords; nil: no SASL
	}{
		"neither":       {"", nil},
		"JAAS":          {"java.security.auth.login.config=%D/jaas", map[string]string{"bob": "one", "super": "two"}},
		"JAAS as a URL": {"zookeeper.java.security.auth.login.config=file:%D/jaas", map[string]string{"bob": "one", "super": "two"}},
		"section":       {"java.security.auth.login.config=%D/jaas\nsasl.serverconfig=Other", map[string]string{"eve": "three"}},
		"no section":    {"java.security.auth.login.config=%D/jaas\nsasl.serverconfig=None", nil},
		"hashed":        {"saslUsersFile=%D/users", map[string]string{"ann": "four"}},
		"all":           {"java.security.auth.login.config=%D/jaas\nsaslUsersFile=%D/users\nSASLAuthenticationProvider.superPassword=five", map[string]string{"bob": "one", "super": "five", "ann": "four"}},
	} {
		file, dir := writeConfig(t, base+x.text, "")
		if err := os.Chmod(file, 0o600); err != nil {
			t.Fatal(err)
		}
		writeSecret(t, filepath.Join(dir, "jaas"), jaas)
		writeSecret(t, filepath.Join(dir, "users"), ann+"\n")
		cfg, err := Load(file)
		if err != nil || (cfg.Auth.SASLUsers == nil) != (x.want == nil) || len(cfg.Auth.SASLUsers) != len(x.want) {
			t.Errorf("%s: %v, %v", name, cfg.Auth.SASLUsers, err)
		}
		for user, password := range x.want {
			if cfg.Auth.SASLUsers[user] != sasl.NewHA1(user, password) {
				t.Errorf("%s: user %s has another password", name, user)
			}
		}
		var want []string
		if name == "no section" {
			want = []string{file + ":3: java.security.auth.login.config: warning: " + dir + "/jaas has no section None: nobody can log in with SASL"}
		}
		var got []string
		for _, n := range cfg.Notices() {
			got = append(got, n.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: notices %q, want %q", name, got, want)
		}
	}
}

// TestSASLFileFaults: what is wrong with a file of users is reported with that file and its line,
// and never with a secret.
func TestSASLFileFaults(t *testing.T) {
	file, dir := writeConfig(t, base+"java.security.auth.login.config=%D/jaas\nsaslUsersFile=%D/users\nsessionRequireClientSASLAuth=true\nsuperUser=bob", "")
	for name, x := range map[string]struct {
		jaas, users string
		want        []string
	}{
		"syntax": {strings.Replace(jaas, "user_super=", "user_super", 1), "ann:secret", []string{
			dir + "/jaas:3: java.security.auth.login.config: = behind the name of an option is expected",
			dir + "/users:1: saslUsersFile: must be user:zk-sasl-md5:HA1, as 'lockkeeper digest -sasl USER' prints it"}},
		"Kerberos": {"Server {\n com.sun.security.auth.module.Krb5LoginModule required; };", "", []string{
			dir + "/jaas:2: java.security.auth.login.config: com.sun.security.auth.module.Krb5LoginModule: there is no Kerberos (GSSAPI) here, only DIGEST-MD5"}},
		"twice": {jaas, "bob:zk-sasl-md5:" + strings.Repeat("0", 32), []string{
			file + ":4: saslUsersFile: " + dir + `/users: user "bob" is in the file of java.security.auth.login.config, too`}},
		"nobody": {"", "", []string{
			file + ":5: sessionRequireClientSASLAuth: nobody could log in with sasl: there are no users: java.security.auth.login.config or saslUsersFile has to name a file with them"}},
	} {
		writeSecret(t, filepath.Join(dir, "jaas"), x.jaas)
		writeSecret(t, filepath.Join(dir, "users"), x.users)
		_, err := Load(file)
		if err == nil || err.Error() != strings.Join(x.want, "\n") {
			t.Errorf("%s:\n%v\nwant:\n%s", name, err, strings.Join(x.want, "\n"))
		}
	}
}

// TestReadableSecrets: files with secrets that everybody can read are warned of.
func TestReadableSecrets(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("permissions are not in the mode of a file")
	}
	file, dir := writeConfig(t, base+"java.security.auth.login.config=%D/jaas\nSASLAuthenticationProvider.superPassword=x", "")
	writeFile(t, filepath.Join(dir, "jaas"), jaas)
	for path, mode := range map[string]os.FileMode{file: 0o644, filepath.Join(dir, "jaas"): 0o644} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		file + ":3: java.security.auth.login.config: warning: everybody on this machine can read " + dir + "/jaas, and log in with what is in it (chmod o-r jaas)",
		file + ":4: SASLAuthenticationProvider.superPassword: warning: everybody on this machine can read " + file + ", and log in with what is in it (chmod o-r zoo.cfg)"}
	var got []string
	for _, n := range cfg.Notices() {
		got = append(got, n.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("notices:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestReadableKeys: a zoo.cfg that everybody can read is warned of once if it has a secret of any
// kind, and so are the files with private keys and passwords that it names.
func TestReadableKeys(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("permissions are not in the mode of a file")
	}
	const digest = "DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n"
	for _, tt := range []struct {
		text string
		mode os.FileMode
		want []string
	}{
		{"maxCnxns=100", 0o644, nil},
		{digest, 0o640, nil},
		{digest, 0o644, []string{"zoo.cfg"}},
		{digest + "ssl.keyStore.password=x\n", 0o644, []string{"zoo.cfg"}},
		{"ssl.quorum.keyStore.password=x", 0o644, []string{"zoo.cfg"}},
		{"ssl.trustStore.password=x", 0o644, nil},
		{"tls.key=%D/key", 0o644, []string{"key"}},
		{"ssl.keyStore.location=%D/key\nssl.keyStore.passwordPath=%D/pw", 0o644, []string{"key", "pw"}},
		{"ssl.keyStore.location=%D/key\nssl.keyStore.passwordPath=%D/pw", 0o600, nil},
	} {
		file, dir := writeConfig(t, base+tt.text, "")
		for _, name := range []string{"zoo.cfg", "key", "pw"} {
			path := filepath.Join(dir, name)
			if name != "zoo.cfg" {
				writeFile(t, path, "x")
			}
			if err := os.Chmod(path, tt.mode); err != nil {
				t.Fatal(err)
			}
		}
		cfg, _ := Load(file) // there are faults, too
		var got []string
		for _, n := range cfg.Notices() {
			if _, rest, ok := strings.Cut(n.Text, "everybody on this machine can read "+dir+"/"); ok {
				name, _, _ := strings.Cut(rest, ",")
				got = append(got, name)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q, mode %04o: warned of %q, want %q", tt.text, tt.mode, got, tt.want)
		}
	}
}

// TestLoginKeys: the other keys about logins.
func TestLoginKeys(t *testing.T) {
	file, dir := writeConfig(t, base+`java.security.auth.login.config=%D/jaas
authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider
authProvider.2=org.apache.zookeeper.server.auth.KeyAuthenticationProvider
superUser=bob
zookeeper.superUser.2=super
allowSaslFailedClients=true
enforce.auth.enabled=true
enforce.auth.schemes=digest, sasl
ensembleAuthName=alpha, beta
zookeeper.letAnySaslUserDoX=everybody
`, "")
	writeSecret(t, filepath.Join(dir, "jaas"), jaas)
	cfg, err := Load(file)
	if err != nil || cfg.Auth.AnySASLUser != "everybody" || !cfg.Auth.SASLACLs || !cfg.Auth.KeyScheme || !cfg.Auth.SASLOptional || !slices.Equal(cfg.Auth.SuperUsers, []string{"bob", "super"}) ||
		!slices.Equal(cfg.Auth.Ensembles, []string{"alpha", "beta"}) || !slices.Equal(cfg.Auth.RequiredSchemes, []string{"digest", "sasl"}) {
		t.Errorf("%+v, %v", cfg, err)
	}
	file, dir = writeConfig(t, base+`java.security.auth.login.config=%D/jaas
authProvider.3=org.apache.zookeeper.server.auth.EnsembleAuthenticationProvider
sessionRequireClientSASLAuth=true
enforce.auth.schemes=digest
`, "")
	writeSecret(t, filepath.Join(dir, "jaas"), jaas)
	cfg, err = Load(file)
	if err != nil || cfg.Auth.Ensembles == nil || len(cfg.Auth.Ensembles) != 0 || !slices.Equal(cfg.Auth.RequiredSchemes, []string{"sasl"}) {
		t.Errorf("%+v, %v", cfg, err)
	}
}
