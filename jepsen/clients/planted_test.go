package clients

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A planted bug replaces parts of one of the clients' files. The story has to break off, for a
// reason that has the text found.
type planted struct {
	bug   string
	file  string   // in the directory of the client
	edits []string // old and new in turn
	story string
	found string
}

const (
	javaGrant   = "src/main/java/lockkeeper/curator/Grant.java"
	javaGrants  = "src/main/java/lockkeeper/curator/Grants.java"
	javaLease   = "src/main/java/lockkeeper/curator/FencedSemaphore.java"
	javaLayouts = "src/main/java/lockkeeper/curator/AllLayouts.java"
	pythonLocks = "lockkeeper/locks.py"

	// Changes of more than one bug.
	javaDeaf    = "state == ConnectionState.SUSPENDED"
	javaLooks   = "if (!isProven(System.nanoTime()))"
	javaBeats   = "if (!isProven(System.nanoTime() + period))"
	pythonDeaf  = "KazooState.SUSPENDED: SUSPENDED, "
	pythonLooks = "if self._remaining() == 0:"
)

var plantedJava = []planted{
	{"lost with the session only", javaGrant, []string{javaDeaf, "state == null", javaLooks, "if (false)", javaBeats, "if (false)"},
		"cut", "has not lost the lock"},
	{"Curator is not heard", javaGrant, []string{javaDeaf, "state == null"},
		"units", "the node was read 1 times"},
	{"Curator alone is heard", javaGrant, []string{javaLooks, "if (false)", javaBeats, "if (false)"},
		"trouble", "has not lost the lock"},
	{"the clock is looked at now and then", javaGrant, []string{javaLooks, "if (false)"},
		"units", "a grant stands on an old proof"},
	{"a token that is not the czxid", javaGrant, []string{"node, stat.getCzxid()", "node, stat.getCtime()"},
		"turns", "the czxid of the node is"},
	{"the node of any session", javaGrant, []string{"stat.getEphemeralOwner() != session.getSessionId()", "false"},
		"units", "another session's node was granted"},
	{"trouble during the reading is ignored", javaGrant, []string{"if (grant.isHeld())", "if (grant != null)"},
		"units", "the grant was lost before it was given"},
	{"a deletion goes unnoticed", javaGrant, []string{"EventType.NodeDeleted", "EventType.None", "lost.complete(Loss.DELETED);\n            }\n        }", "}}"},
		"endings", `does not say ["ended" "h" "deleted"]`},
	{"the grant outlives the release", javaGrants, []string{"holding.grant.end();", ""},
		"turns", `does not say ["ended" "h" "released"]`},
	{"the grant ends with the first release", javaGrants, []string{"--holding.depth == 0", "--holding.depth >= 0"},
		"units", "this thread does not hold the lock"},
	{"the grant outlives the lease", javaLease, []string{"grant.end();", ""},
		"semaphore", `does not say ["ended" "b" "released"]`},
	{"a guard without a check", javaGrant, []string{"check().forPath(node)", "check().forPath(\"/\")"},
		"guard", `does not say ["refused" "h"]`},
	{"a guard that is refused is no loss", javaGrant, []string{"KeeperException.NoNodeException e", "KeeperException.BadVersionException e"},
		"guard", `instead of ["refused" "h"]`},
	{"other layouts are overtaken", javaLayouts, []string{"numbered ? ", "numbered && name.contains(lockName) ? "},
		"layouts", "has not waited"},
}

var plantedPython = []planted{
	{"lost with the session only", pythonLocks, []string{pythonDeaf, "", pythonLooks, "if False:"},
		"cut", "has not lost the lock"},
	{"kazoo is not heard", pythonLocks, []string{pythonDeaf, ""},
		"units", "test_losses"},
	{"kazoo alone is heard", pythonLocks, []string{pythonLooks, "if False:"},
		"trouble", "has not lost the lock"},
	{"a token that is not the czxid", pythonLocks, []string{"self.token = stat.czxid", "self.token = stat.ctime"},
		"turns", "the czxid of the node is"},
	{"the node of any session", pythonLocks, []string{"stat.ephemeralOwner != session[0]", "False"},
		"units", "SessionExpiredError not raised"},
	{"trouble during the reading is ignored", pythonLocks, []string{"if session is None or not self.held:", "if session is None:"},
		"units", "test_trouble_while_the_node_is_read"},
	{"a deletion goes unnoticed", pythonLocks, []string{"EventType.DELETED", "EventType.NONE", "            else:\n                self._end(DELETED)", ""},
		"endings", `does not say ["ended" "h" "deleted"]`},
	{"the grant outlives the release", pythonLocks, []string{"            self.grant._end(RELEASED)", "            pass"},
		"semaphore", `does not say ["ended" "b" "released"]`},
	{"a guard without a check", pythonLocks, []string{"self.check(grant.node, -1)", "self.check(\"/\", -1)"},
		"guard", `does not say ["refused" "h"]`},
	{"an operation's failure goes unnoticed", pythonLocks, []string{"                raise result", "                pass"},
		"guard", "want the error of the write"},
	{"other layouts are overtaken", pythonLocks, []string{`_SHARED_EXCLUDES = ["-", "_"]`, `_SHARED_EXCLUDES = ["-"]`},
		"layouts", "has not waited"},
	{"readers wait for readers", pythonLocks, []string{"(?<!__rlock_)(?<!__READ_)_", "_"},
		"layouts", `does not say ["granted" "read=all"]`},
}

// plantedPatience is for a story with a planted bug, in which contenders may wait in vain.
const plantedPatience = 30 * time.Second

// TestPlantedBugs plays a story with each planted bug, which has to find it.
func TestPlantedBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; not with -short")
	}
	sound := map[string]language{
		"java":   java(t, filepath.Join(sources, "java")),
		"python": python(t, filepath.Join(sources, "python")),
	}
	target, err := tools.Lockkeeper()
	if err != nil {
		t.Fatal(err)
	}
	servers := cluster(t, target, 1)
	for _, client := range []struct {
		name  string
		ready func(t testing.TB, dir string) language
		bugs  []planted
	}{
		{"java", java, plantedJava},
		{"python", python, plantedPython},
	} {
		for _, bug := range client.bugs {
			t.Run(client.name+"/"+bug.bug, func(t *testing.T) {
				t.Parallel()
				bad := client.ready(t, bug.plant(t, filepath.Join(sources, client.name)))
				s := newStage(t, servers, plantedPatience)
				st := story{"layouts", func(s *stage, bad language) {
					languages := map[string]language{"java": sound["java"], "python": sound["python"], client.name: bad}
					layouts(s, languages["java"], languages["python"])
				}}
				for _, other := range stories {
					if other.name == bug.story {
						st = other
					}
				}
				if err := s.play(st, bad); err == nil || !strings.Contains(err.Error(), bug.found) {
					t.Errorf("the story %q has found %v, not %q (%s)", st.name, err, bug.found, s.figures)
				}
			})
		}
	}
}

// plant returns the directory of a copy of the client with the bug.
func (p planted) plant(t *testing.T, client string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "client")
	if err := os.CopyFS(dir, os.DirFS(client)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, p.file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := string(text)
	for edit := range slices.Chunk(p.edits, 2) {
		if n := strings.Count(changed, edit[0]); n != 1 {
			t.Fatalf("%s has %q %d times, not once", p.file, edit[0], n)
		}
		changed = strings.Replace(changed, edit[0], edit[1], 1)
	}
	if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}
