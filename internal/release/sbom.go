package main

import (
	"debug/buildinfo"
	"encoding/json"
	"strings"
	"time"
)

// The list of a program's modules is a CycloneDX 1.5 document. The linker has written the modules
// into the program, so the list has the linked ones, and not the ones that a go.mod allows.
type bom struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   bomMetadata `json:"metadata"`
	Components []component `json:"components"`
}

type bomMetadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// components is the list of a program.
func (r *release) components(p program) ([]byte, error) {
	info, err := buildinfo.ReadFile(p.path)
	if err != nil {
		return nil, err
	}
	list := bom{Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: bomMetadata{
		Timestamp: r.date.Format(time.RFC3339),
		Component: component{Type: "application", Ref: p.name, Name: "lockkeeper", Version: r.version,
			Properties: []property{{"commit", r.commit}, {"archive", p.name}}},
	}}
	add := func(path, version string, properties ...property) {
		purl := "pkg:golang/" + path + "@" + version
		list.Components = append(list.Components, component{"library", purl, path, version, purl, properties})
	}
	add("std", strings.TrimPrefix(info.GoVersion, "go"))
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		add(dep.Path, dep.Version, property{"go.sum", dep.Sum})
	}
	text, err := json.MarshalIndent(list, "", "  ")
	return append(text, '\n'), err
}
