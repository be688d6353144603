package jepsen

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// workerSources are the workers that are not written in Go.
//
//go:embed workers/kazoo/worker.py workers/curator/Worker.java
var workerSources embed.FS

// A Client is a client library, as a worker process that runs it.
type Client struct {
	// Name is "kazoo", "curator" or "gozk".
	Name string `json:"name"`
	// Command is the command line of the worker; its arguments follow.
	Command []string `json:"command"`
}

// A Toolbox builds the programs that a test starts, each once and only when it is asked for. It may
// be used by several goroutines.
type Toolbox struct {
	dir string

	// Lockkeeper is this module's own server.
	Lockkeeper func() (Target, error)
	// Traced is Lockkeeper with trace points: its members write their events into the directory
	// LOCKKEEPER_TRACE, for quorum/model/trace.
	Traced func() (Target, error)
	// Kazoo is the Python library kazoo (written for 2.8) with its recipes lock, read, write,
	// semaphore and election.
	Kazoo func() (Client, error)
	// Curator is Apache Curator (written for 5.4) over the Java client, with its recipes mutex,
	// read, write, semaphore and latch.
	Curator func() (Client, error)
	// FencedCurator and FencedKazoo are programs of Curator and kazoo with the fenced locks of
	// clients/java and clients/python, and with their fences: many in one process (Holder.java).
	FencedCurator, FencedKazoo func() (Client, error)
	// Gozk is github.com/go-zookeeper/zk, with its own Lock as the recipe zklock and this module's
	// package recipes above it as the recipe mutex.
	Gozk func() (Client, error)
}

// NewToolbox makes an empty toolbox. With race, the server is built with the race detector. The go
// command must be run inside of the module lockkeeper.
func NewToolbox(race bool) (*Toolbox, error) {
	dir, err := tempDir("toolbox")
	if err != nil {
		return nil, err
	}
	t := &Toolbox{dir: dir}
	t.Lockkeeper = sync.OnceValues(func() (Target, error) {
		binary, err := t.goBuild("lockkeeper/cmd/lockkeeper", race)
		return Lockkeeper(binary), err
	})
	t.Traced = sync.OnceValues(func() (Target, error) {
		binary, err := t.goBuild("lockkeeper/cmd/lockkeeper", race, "-tags", "trace")
		return Lockkeeper(binary), err
	})
	t.Gozk = sync.OnceValues(func() (Client, error) {
		// Never with the race detector: go-zookeeper 1.0.4 has races of its own (sendSetWatches
		// reads lastZxid while recvLoop writes it), and it is used as it is.
		binary, err := t.goBuild("lockkeeper/jepsen/workers/gozk", false)
		return Client{Name: "gozk", Command: []string{binary}}, err
	})
	t.Kazoo = sync.OnceValues(t.findKazoo)
	t.Curator = sync.OnceValues(t.buildCurator)
	t.FencedKazoo = sync.OnceValues(t.findFencedKazoo)
	t.FencedCurator = sync.OnceValues(t.buildFencedCurator)
	return t, nil
}

// Close removes the binaries.
func (t *Toolbox) Close() error {
	if err := os.RemoveAll(t.dir); err != nil {
		return fmt.Errorf("jepsen: %w", err)
	}
	return nil
}

// Libraries are all clients that there are.
func (t *Toolbox) Libraries() (all []Client, err error) {
	for _, find := range []func() (Client, error){t.Kazoo, t.Curator, t.Gozk} {
		c, e := find()
		all, err = append(all, c), errors.Join(err, e)
	}
	return all, err
}

// goBuild builds one command of this module.
func (t *Toolbox) goBuild(pkg string, race bool, flags ...string) (string, error) {
	binary := filepath.Join(t.dir, strings.Join(append([]string{filepath.Base(pkg)}, flags...), ""))
	args := append([]string{"build", "-o", binary}, flags...)
	if race {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, pkg)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("jepsen: go build %s: %w\n%s", pkg, err, out)
	}
	return binary, nil
}

// findKazoo looks for a Python that has kazoo. Debian's package installs it for /usr/bin/python3,
// which need not be the first one on the PATH.
func (t *Toolbox) findKazoo() (Client, error) {
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(python, "-c", "import kazoo").Run() != nil {
			continue
		}
		script, err := t.extract("workers/kazoo/worker.py")
		return Client{Name: "kazoo", Command: []string{python, "-u", script}}, err
	}
	return Client{}, fmt.Errorf("jepsen: the Python module kazoo: %w (apt-get install python3-kazoo)", ErrMissing)
}

// buildCurator compiles the Java worker.
func (t *Toolbox) buildCurator() (Client, error) {
	javac, err := findJava("javac")
	if err != nil {
		return Client{}, err
	}
	jars, err := classPath(curatorJars...)
	if err != nil {
		return Client{}, err
	}
	source, err := t.extract("workers/curator/Worker.java")
	if err != nil {
		return Client{}, err
	}
	classes := filepath.Dir(source)
	out, err := exec.Command(javac, "-Xlint:all,-classfile,-path,-processing", "-cp", jars, "-d", classes,
		source).CombinedOutput()
	if err != nil {
		return Client{}, fmt.Errorf("jepsen: javac %s: %w\n%s", source, err, out)
	}
	worker, err := javaProgram(append([]string{classes}, curatorJars...), append(javaFlags(), "-Xmx128m"), "Worker")
	if err != nil {
		return Client{}, err
	}
	return Client{Name: "curator", Command: worker().Args}, nil
}

// clientsDir is the directory of the clients' sources.
func clientsDir() (string, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "lockkeeper").Output()
	if err != nil {
		return "", fmt.Errorf("jepsen: where are the sources of lockkeeper? %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(root)), "clients"), nil
}

// findFencedKazoo needs kazoo, and the drivers of the databases.
func (t *Toolbox) findFencedKazoo() (Client, error) {
	kazoo, err := t.Kazoo()
	if err != nil {
		return Client{}, err
	}
	python := kazoo.Command[0]
	for module, name := range map[string]string{"psycopg2": "psycopg2", "pymysql": "pymysql", "redis": "redis"} {
		if err := exec.Command(python, "-c", "import "+module).Run(); err != nil {
			return Client{}, fmt.Errorf("jepsen: the Python module %s: %w (apt-get install python3-%s)", module, ErrMissing, name)
		}
	}
	dir, err := clientsDir()
	dir = filepath.Join(dir, "python")
	return Client{Name: "fenced-kazoo", Command: []string{"env", "PYTHONPATH=" + dir, "PYTHONDONTWRITEBYTECODE=1",
		python, "-u", filepath.Join(dir, "tests", "holder.py")}}, err
}

// buildFencedCurator compiles clients/java with its tests.
func (t *Toolbox) buildFencedCurator() (Client, error) {
	if _, err := findJava("javac"); err != nil {
		return Client{}, err
	}
	if _, err := classPath(curatorJars...); err != nil {
		return Client{}, err
	}
	target := filepath.Join(t.dir, "fenced-curator")
	jars := append([]string{filepath.Join(target, "classes"), filepath.Join(target, "test-classes")}, curatorJars...)
	for jar, name := range map[string]string{"sqlite-jdbc": "libxerial-sqlite-jdbc-java", "postgresql": "libpostgresql-jdbc-java",
		"mariadb-java-client": "libmariadb-java"} {
		if _, err := classPath(jar + ".jar"); err != nil {
			return Client{}, fmt.Errorf("jepsen: %s: %w (apt-get install %s)", jar, ErrMissing, name)
		}
		jars = append(jars, jar+".jar")
	}
	dir, err := clientsDir()
	if err != nil {
		return Client{}, err
	}
	build := exec.Command(filepath.Join(dir, "java", "build"), "test")
	build.Env = append(os.Environ(), "TARGET="+target)
	if out, err := build.CombinedOutput(); err != nil {
		return Client{}, fmt.Errorf("jepsen: %s: %w\n%s", build, err, out)
	}
	holder, err := javaProgram(jars, append(javaFlags(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-Xmx512m"),
		"lockkeeper.lab.Holder")
	if err != nil {
		return Client{}, err
	}
	return Client{Name: "fenced-curator", Command: holder().Args}, nil
}

// extract writes one of the embedded sources to the toolbox's directory, into a directory of its
// own.
func (t *Toolbox) extract(name string) (string, error) {
	text, err := fs.ReadFile(workerSources, name)
	if err != nil {
		return "", fmt.Errorf("jepsen: %w", err)
	}
	file := filepath.Join(t.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", fmt.Errorf("jepsen: %w", err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return "", fmt.Errorf("jepsen: %w", err)
	}
	return file, nil
}
