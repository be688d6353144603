package znode

import "testing"

// TestX500Names has the verdict of Java 17 on each (new X500Principal(name)).
func TestX500Names(t *testing.T) {
	for name, want := range map[string]bool{
		"":                           true,
		" ":                          false,
		"CN=a":                       true,
		"CN=a,OU=b,O=c":              true,
		"cn=a":                       true,
		"CN = a , O = b":             true,
		"CN=a;O=b":                   true,
		"CN=a+O=b":                   true,
		"CN=":                        true,
		"=a":                         false,
		"a":                          false,
		"FOO=a":                      false,
		"1.2.3=a":                    true,
		"OID.1.2.3=a":                true,
		"oid.2.5.4.3=x":              true,
		"9.2.3=a":                    false,
		"1=a":                        false,
		"1.=a":                       false,
		"CN=a,":                      false,
		"CN=a,,O=b":                  false,
		"CN=\"a,b\"":                 true,
		"CN=\"a,b":                   false,
		"CN=\"a\"b":                  false,
		"CN=a\\,b":                   true,
		"CN=a\\zb":                   false,
		"CN=a\\41":                   true,
		"CN=#04":                     false,
		"CN=#0401":                   false,
		"CN=#1":                      false,
		"CN=#":                       false,
		"CN=#zz":                     false,
		"CN=a#b":                     true,
		"CN=a<b":                     false,
		"CN=a>b":                     false,
		"CN=a=b":                     true,
		"CN=a\"b":                    false,
		"CN=a b  c":                  true,
		",CN=a":                      false,
		"CN=a +O=b":                  true,
		"CN=a\\":                     false,
		"CN=é":                       true,
		"CN=\"\"":                    true,
		"CN= ":                       true,
		"CN=,O=b":                    true,
		"C=x":                        true,
		"DC=a@b":                     true,
		"CN=a\nb":                    true,
		"\nCN=a":                     true,
		"CN=#04 ,O=b":                false,
		"CN=\"a\" ,O=b":              true,
		"SERIALNUMBER=1":             true,
		"TITLE=x":                    false,
		"CN=\\ a":                    true,
		"CN=a;":                      false,
		"CN=#040161":                 true,
		"CN=#040161,O=b":             true,
		"CN=#0401 61":                false,
		"CN=a+":                      false,
		"2.999.1=a":                  true,
		"1.40.1=a":                   false,
		"1.2.12345678901234567890=a": true,
		"CN=\"a=b\"":                 true,
		"IP=1":                       true,
		"CN=\\#a":                    true,
		"E=a":                        false,
		"CN=-":                       true,
	} {
		if got := validX500Name(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

// TestPrincipals has the rule of ZooKeeper's KerberosName: its pattern, or anything without an
// "@".
func TestPrincipals(t *testing.T) {
	for name, want := range map[string]bool{
		"user": true, "": true, "user/host": true, "a/b/c": true, "user@REALM": true, "user/host@REALM": true, "@": true,
		"@R": true, "u@": true, "a/b/c@R": false, "u@R@S": false, "u@R/x": false,
	} {
		if got := validPrincipal(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}
