// Package config holds the NodeletConfiguration: its types, defaults and strict
// decoding. Field names are those of KubeletConfiguration wherever the meaning
// is equal.
package config
