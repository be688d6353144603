package main

import (
	"context"
	"fmt"
	"log/slog"
)

// clientLog says what package recipes logs, from warnings on, as a command's own messages are said.
type clientLog struct {
	f       *clientFlags
	e       env
	command string
	attrs   []slog.Attr
}

func (l *clientLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (l *clientLog) Handle(_ context.Context, r slog.Record) error {
	words, event := r.Message, map[string]any{"event": "warning"}
	add := func(a slog.Attr) bool {
		words += fmt.Sprintf("  %s=%q", a.Key, a.Value)
		event[a.Key] = a.Value.String()
		return true
	}
	for _, a := range l.attrs {
		add(a)
	}
	r.Attrs(add)
	l.f.say(l.e, l.command, words, event)
	return nil
}

func (l *clientLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *l
	with.attrs = append(l.attrs[:len(l.attrs):len(l.attrs)], attrs...)
	return &with
}

// WithGroup changes nothing: no key is used twice.
func (l *clientLog) WithGroup(string) slog.Handler { return l }
