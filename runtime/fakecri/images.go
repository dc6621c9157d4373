package fakecri

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const defaultImageSize = 1 << 20

// image is one name at the registry, guarded by Server.mu.
type image struct {
	ref      string   // complete
	given    []string // as tests wrote it
	id       string
	size     uint64
	present  bool
	pinned   bool
	command  []string
	user     string
	username string
	password string
	latency  time.Duration
	err      error
}

// SetImage adds an image or changes what a name stands for. A container keeps the image that it was made with.
func (s *Server) SetImage(i Image) {
	made := newImage(i)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images[made.ref] = made
}

func newImage(i Image) *image {
	full := completeRef(i.Ref)
	made := &image{
		ref: full, given: []string{i.Ref}, id: i.ID, size: i.Size, present: i.Present, pinned: i.Pinned,
		command: slices.Clone(i.Command), user: i.User, username: i.Username, password: i.Password,
		latency: i.PullLatency, err: i.PullError,
	}
	if made.id == "" {
		made.id = digest("image " + full)
	}
	if made.size == 0 {
		made.size = defaultImageSize
	}
	return made
}

// ForgetImage makes a name unknown to the registry and takes it off the machine.
func (s *Server) ForgetImage(ref string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.images, completeRef(ref))
}

// completeRef adds what a short name leaves out: the registry, its library, the tag.
func completeRef(ref string) string {
	name, digest, pinned := strings.Cut(ref, "@")
	first, rest, slashes := strings.Cut(name, "/")
	switch {
	case !slashes:
		name = "docker.io/library/" + name
	case !strings.ContainsAny(first, ".:") && first != "localhost":
		name = "docker.io/" + first + "/" + rest
	}
	if pinned {
		return name + "@" + digest
	}
	if !strings.Contains(name[strings.LastIndexByte(name, '/'):], ":") {
		name += ":latest"
	}
	return name
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// repoDigest is the name by content, under which a present image is also found.
func (i *image) repoDigest() string {
	if strings.Contains(i.ref, "@") {
		return i.ref
	}
	return i.ref[:strings.LastIndexByte(i.ref, ':')] + "@" + digest("manifest "+i.id)
}

// resolveImageLocked finds a present image by name, id or digest.
func (s *Server) resolveImageLocked(ref string) *image {
	if ref == "" {
		return nil
	}
	if i := s.images[completeRef(ref)]; i != nil && i.present {
		return i
	}
	for _, i := range s.presentLocked() {
		if i.id == ref || strings.TrimPrefix(i.id, "sha256:") == ref || i.repoDigest() == completeRef(ref) {
			return i
		}
	}
	return nil
}

func (s *Server) presentLocked() []*image {
	var present []*image
	for _, i := range s.images {
		if i.present {
			present = append(present, i)
		}
	}
	slices.SortFunc(present, func(a, b *image) int { return strings.Compare(a.ref, b.ref) })
	return present
}

func (s *Server) imageByIDLocked(id string) *image {
	var names *image
	for _, i := range s.presentLocked() {
		if i.id == id {
			if names == nil {
				copied := *i
				names = &copied
			} else {
				names.given = append(slices.Clone(names.given), i.given...)
			}
		}
	}
	return names
}

func (s *Server) referencesLocked(id string) (tags, digests []string) {
	for _, i := range s.presentLocked() {
		if i.id != id {
			continue
		}
		if !strings.Contains(i.ref, "@") {
			tags = append(tags, i.ref)
		}
		if !slices.Contains(digests, i.repoDigest()) {
			digests = append(digests, i.repoDigest())
		}
	}
	return tags, digests
}

func (s *Server) imageMessageLocked(i *image) *runtimeapi.Image {
	tags, digests := s.referencesLocked(i.id)
	message := &runtimeapi.Image{Id: i.id, RepoTags: tags, RepoDigests: digests, Size: i.size, Pinned: i.pinned}
	user, _, _ := strings.Cut(i.user, ":")
	if uid, err := strconv.ParseInt(user, 10, 64); err == nil {
		message.Uid = &runtimeapi.Int64Value{Value: uid}
	} else {
		message.Username = user
	}
	return message
}

// ListImages implements CRI.
func (s *Server) ListImages(_ context.Context, r *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &runtimeapi.ListImagesResponse{}
	if ref := r.GetFilter().GetImage().GetImage(); ref != "" {
		if i := s.resolveImageLocked(ref); i != nil {
			answer.Images = append(answer.Images, s.imageMessageLocked(i))
		}
		return answer, nil
	}
	seen := map[string]bool{}
	for _, i := range s.presentLocked() {
		if !seen[i.id] {
			seen[i.id] = true
			answer.Images = append(answer.Images, s.imageMessageLocked(i))
		}
	}
	return answer, nil
}

// ImageStatus implements CRI: an absent image is an empty answer, not an error.
func (s *Server) ImageStatus(_ context.Context, r *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &runtimeapi.ImageStatusResponse{}
	if i := s.resolveImageLocked(r.GetImage().GetImage()); i != nil {
		answer.Image = s.imageMessageLocked(i)
		if r.GetVerbose() {
			answer.Info = map[string]string{"info": "{}"}
		}
	}
	return answer, nil
}

// PullImage implements CRI.
func (s *Server) PullImage(ctx context.Context, r *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	ref := r.GetImage().GetImage()
	s.mu.Lock()
	i := s.pullableLocked(ref)
	s.mu.Unlock()
	if i != nil {
		if err := s.sleep(ctx, i.latency); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The registry may have changed while the pull took its time.
	i = s.pullableLocked(ref)
	switch {
	case i == nil && s.options.PullAny && ref != "":
		i = newImage(Image{Ref: ref})
		s.images[i.ref] = i
	case i == nil:
		return nil, status.Errorf(codes.NotFound, "cannot pull image %q: not found", ref)
	case i.username != "" && (r.GetAuth().GetUsername() != i.username || r.GetAuth().GetPassword() != i.password):
		// Refused credentials have no class on any release, and the texts are all that there is.
		if r.GetAuth().GetUsername() == "" && s.options.Flavor == Containerd24 {
			return nil, status.Errorf(codes.Unknown, "cannot pull image %q: pull access denied, repository does not exist or may require "+
				"authorization: authorization failed: no basic auth credentials", ref)
		}
		return nil, status.Errorf(codes.Unknown, "cannot pull image %q: unexpected status from HEAD request: 401 Unauthorized", ref)
	case i.err != nil:
		return nil, i.err
	}
	i.present = true
	return &runtimeapi.PullImageResponse{ImageRef: i.id}, nil
}

func (s *Server) pullableLocked(ref string) *image {
	if i := s.images[completeRef(ref)]; i != nil {
		return i
	}
	for _, i := range s.images {
		if i.id == ref || i.repoDigest() == completeRef(ref) {
			return i
		}
	}
	return nil
}

// RemoveImage implements CRI: all names of the image go, and an absent one is no error.
func (s *Server) RemoveImage(_ context.Context, r *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.resolveImageLocked(r.GetImage().GetImage()); found != nil {
		for _, i := range s.images {
			if i.id == found.id {
				i.present = false
			}
		}
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo implements CRI.
func (s *Server) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var used uint64
	for _, i := range s.presentLocked() {
		used += i.size
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: "/"},
		UsedBytes:  &runtimeapi.UInt64Value{Value: used},
		InodesUsed: &runtimeapi.UInt64Value{Value: uint64(len(s.images))},
	}}}, nil
}
