package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// format is a kind of package.
type format struct {
	name     string // of the folder with its scripts, too
	packager interface {
		Package(*nfpm.Info, io.Writer) error
		ConventionalFileName(*nfpm.Info) string
	}
	zsh     string // where zsh looks for completions
	depends []string
	scripts nfpm.Scripts // by the names of their files
}

// formats are the kinds of packages. Both take the user from sysusers.d: in Debian
// systemd-sysusers makes it after the files are unpacked, and in Fedora a script of the package
// before that, because rpm gives the files to their owners as it unpacks them.
var formats = []format{
	{
		name: "deb", packager: deb.Default,
		zsh:     "usr/share/zsh/vendor-completions/_lockkeeper",
		depends: []string{"systemd | systemd-standalone-sysusers | systemd-sysusers"},
		scripts: nfpm.Scripts{PostInstall: "postinst", PreRemove: "prerm", PostRemove: "postrm"},
	}, {
		name: "rpm", packager: rpm.DefaultRPM,
		zsh:     "usr/share/zsh/site-functions/_lockkeeper",
		depends: []string{"shadow-utils", "systemd"},
		scripts: nfpm.Scripts{PreInstall: "pre", PostInstall: "post", PreRemove: "preun", PostRemove: "postun"},
	},
}

// packaged is a file or a directory of a package.
type packaged struct {
	file
	kind         string // of nfpm, such as files.TypeConfigNoReplace
	owner, group string // root, if empty
}

// packages writes the packages for a platform, with a directory for its own use.
func (r *release) packages(p program, pages []file, made generated, stage string) error {
	for _, f := range formats {
		list, err := r.packaged(f, pages, made)
		if err != nil {
			return err
		}
		info, err := r.describe(f, p, made, list, filepath.Join(stage, f.name))
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := f.packager.Package(info, &out); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		name := filepath.Join(r.out, f.packager.ConventionalFileName(info))
		if err := os.WriteFile(name, out.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// packaged is the content of a package.
func (r *release) packaged(f format, pages []file, made generated) (list []packaged, err error) {
	read := func(name string) []byte {
		text, err2 := os.ReadFile(filepath.Join(r.module, "deploy", filepath.FromSlash(name)))
		err = errors.Join(err, err2)
		return text
	}
	add := func(name string, mode fs.FileMode, data []byte) {
		list = append(list, packaged{file: file{name, mode, data}})
	}
	// An administrator's files are in /usr/local, a package's are not.
	unit := bytes.ReplaceAll(read("lockkeeper.service"), []byte("/usr/local/bin/"), []byte("/usr/bin/"))
	add("usr/lib/systemd/system/lockkeeper.service", 0o644, unit)
	add("usr/lib/sysusers.d/lockkeeper.conf", 0o644, read("lockkeeper.sysusers"))
	add("usr/share/bash-completion/completions/lockkeeper", 0o644, made.completions["bash"])
	add("usr/share/fish/vendor_completions.d/lockkeeper.fish", 0o644, made.completions["fish"])
	add(f.zsh, 0o644, made.completions["zsh"])
	if f.name == "deb" {
		add("usr/share/lintian/overrides/lockkeeper", 0o644, read("package/deb/lintian-overrides"))
	}
	for _, m := range made.manuals {
		add("usr/share/man/man1/"+m.name, m.mode, m.data)
	}
	own := func(name string, mode fs.FileMode, kind, owner string, data []byte) {
		p := packaged{file{name, mode, data}, kind, owner, "lockkeeper"}
		if f.name == "deb" {
			p.owner, p.group = "", "" // the user is not there yet: postinst gives it its files
		}
		list = append(list, p)
	}
	own("etc/lockkeeper", 0o750, files.TypeDir, "", nil)
	own("etc/lockkeeper/zoo.cfg", 0o640, files.TypeConfigNoReplace, "", read("package/zoo.cfg"))
	own("var/lib/lockkeeper", 0o700, files.TypeDir, "lockkeeper", nil)
	own("var/log/lockkeeper", 0o750, files.TypeDir, "lockkeeper", nil)
	return append(list, r.documents(f, pages)...), err
}

// documents are the program, the pages and the licences, where the distribution has them.
func (r *release) documents(f format, pages []file) (list []packaged) {
	const docs = "usr/share/doc/lockkeeper/"
	for _, page := range pages {
		p := packaged{file: page}
		switch {
		case page.name == "lockkeeper":
			p.name = "usr/bin/lockkeeper"
		case strings.HasPrefix(page.name, "deploy/"):
			continue // in their places, or for those who do without a package
		case f.name == "rpm" && (page.name == "LICENSE" || page.name == thirdParty):
			p.name, p.kind = "usr/share/licenses/lockkeeper/"+page.name, files.TypeRPMLicense
		case f.name == "deb" && page.name == "LICENSE":
			p.name, p.data = docs+"copyright", fmt.Appendf(nil, copyright, r.date.Year())
		case f.name == "deb" && page.name == "CHANGELOG.md":
			p.name, p.data = docs+"changelog.gz", compressed(page.data)
		default:
			p.name = docs + page.name
		}
		list = append(list, p)
	}
	if f.name == "deb" {
		text := fmt.Sprintf("lockkeeper (%s-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n",
			r.version, r.maintainer, r.date.Format(time.RFC1123Z))
		list = append(list, packaged{file: file{docs + "changelog.Debian.gz", 0o644, compressed([]byte(text))}})
	}
	return list
}

// copyright is in Debian's machine-readable format, with a place for the year.
const copyright = `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: lockkeeper
Comment: The program contains Go and modules of others. Their licences are in
 third-party-licenses.txt in this directory.

Files: *
Copyright: %d The authors of lockkeeper
License: Apache-2.0
 /usr/share/common-licenses/Apache-2.0 has the text of the licence.
`

// describe writes the content of a package into a directory, and returns its description.
func (r *release) describe(f format, p program, made generated, list []packaged, dir string) (*nfpm.Info, error) {
	script := func(name string) string {
		if name == "" {
			return ""
		}
		return filepath.Join(r.module, "deploy/package", f.name, name)
	}
	info := &nfpm.Info{
		Name: "lockkeeper", Arch: p.goarch, Platform: "linux", Version: r.version, Release: "1",
		Section: "net", Priority: "optional", Maintainer: r.maintainer, Homepage: made.homepage, License: "Apache-2.0",
		Description: "coordination server that speaks the ZooKeeper protocol\n" +
			"Programs take locks, elections and membership from lockkeeper with\n" +
			"any client of ZooKeeper. It replicates through Raft, and a client\n" +
			"learns that it is cut off before its lock goes to another one.",
		MTime: r.date,
		Overridables: nfpm.Overridables{
			Depends: f.depends,
			Scripts: nfpm.Scripts{PreInstall: script(f.scripts.PreInstall), PostInstall: script(f.scripts.PostInstall),
				PreRemove: script(f.scripts.PreRemove), PostRemove: script(f.scripts.PostRemove)},
			Deb: nfpm.Deb{Compression: "gzip:9"},
			RPM: nfpm.RPM{Compression: "gzip:9", BuildHost: "localhost", Group: "System Environment/Daemons"},
		},
	}
	for _, l := range list {
		content := &files.Content{Destination: "/" + l.name, Type: l.kind,
			FileInfo: &files.ContentFileInfo{Owner: l.owner, Group: l.group, Mode: l.mode, MTime: r.date}}
		if l.kind != files.TypeDir {
			content.Source = filepath.Join(dir, filepath.FromSlash(l.name))
			if err := errors.Join(os.MkdirAll(filepath.Dir(content.Source), 0o755),
				os.WriteFile(content.Source, l.data, 0o644)); err != nil {
				return nil, err
			}
		}
		if l.name != path.Clean(l.name) {
			return nil, fmt.Errorf("the name %q", l.name)
		}
		info.Contents = append(info.Contents, content)
	}
	return nfpm.WithDefaults(info), nil
}
