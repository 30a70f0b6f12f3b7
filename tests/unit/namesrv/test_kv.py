"""The key-value configuration and its document."""

from pathlib import Path

import pytest

from rockmq.base.errors import ConfigError
from rockmq.namesrv import kv
from rockmq.namesrv.kv import KVConfig, KVError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "namesrv" / "kvConfig.json"


def loaded(path: Path) -> KVConfig:
    config = KVConfig(path)
    config.load()
    return config


def test_values_outlive_the_process(path: Path) -> None:
    config = loaded(path)
    config.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4;broker-b:4")
    config.put("ORDER_TOPIC_CONFIG", "Ü", "x")
    config.put("N", "k", "v")
    config.delete("N", "k")
    config.delete("N", "k")
    config.delete("nothing", "k")
    again = loaded(path)
    assert again.get("ORDER_TOPIC_CONFIG", "T") == "broker-a:4;broker-b:4"
    assert again.get("N", "k") is None
    assert again.namespace("N") == {}
    assert again.namespace("nothing") is None
    assert path.read_text() == ('{"configTable":{"N":{},"ORDER_TOPIC_CONFIG":{"T":"broker-a:4;broker-b:4","\\u00dc":"x"}}}')


def test_apaches_document_is_read_leniently(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{\n\t"configTable":{\'N\':{\n\t\t"a":"1",b:2,"c":null,"d":true\n\t}},"more":1}')
    assert loaded(path).namespace("N") == {"a": "1", "b": "2", "d": "true"}


def test_the_backup_stands_in(path: Path) -> None:
    config = loaded(path)
    config.put("N", "k", "1")
    config.put("N", "k", "2")
    path.write_text("")
    assert loaded(path).get("N", "k") == "1"


@pytest.mark.parametrize("text", ["nonsense", '{"configTable":{"N":[]}}', "{}", '{"configTable":{"N":{"a":'])
def test_an_unreadable_document_is_put_aside(path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    path.write_text(text)
    config = loaded(path)
    assert "kept as" in caplog.text
    config.put("N", "k", "v")
    assert path.with_name("kvConfig.json.unreadable").read_text() == text
    assert loaded(path).get("N", "k") == "v"


def test_a_file_that_cant_be_opened_is_a_config_error(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(ConfigError, match="kvConfigPath"):
        loaded(path)


def test_a_change_that_cant_be_saved_isnt_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = loaded(path)
    config.put("N", "k", "1")

    def full(_path: Path, _text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rockmq.base.files.save", full)
    with pytest.raises(KVError, match="No space left"):
        config.put("N", "k", "2")
    with pytest.raises(KVError, match="No space left"):
        config.delete("N", "k")
    assert config.get("N", "k") == "1"


def test_the_document_has_a_bound(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv, "DOCUMENT_SIZE_MAX", 100)
    config = loaded(path)
    config.put("N", "k", "x" * 50)
    with pytest.raises(KVError, match="the bound is 100"):
        config.put("N", "other", "x" * 50)
    assert config.namespace("N") == {"k": "x" * 50}


def test_all_of_it_is_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = loaded(path)
    config.put("N", "k", "v")
    caplog.clear()
    with caplog.at_level("INFO"):
        config.log_all()
    assert "N: k = v" in caplog.text
